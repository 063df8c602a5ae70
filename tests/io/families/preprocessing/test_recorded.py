"""Prompts that are rendered here against those that engines made of the same conversations, as recorded.

`python -m tests.engines.preprocessing ENGINE --record` records them anew.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.preprocessing.compare import (
    PROBES,
    Template,
    differences,
    digests,
    probes,
    real_templates,
    recorded,
)
from tests.engines.preprocessing.shapes import conversations
from tests.model_folders import FAMILIES, needs_families
from tito_io.cli.options import RENDERED_AS
from tito_io.embedded import write_family
from tito_io.families.preprocessing.engines import RULES

ENGINES = ("vllm", "sglang")


def test_the_command_line_names_the_engines_of_the_table() -> None:
    assert list(RENDERED_AS) == list(RULES)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Template]:
    folder = write_family(tmp_path_factory.mktemp("probes") / "family")
    return {one.name: one for one in probes(folder)}


def theirs(engine: str, probe: str) -> list[str | None]:
    known: dict[str, Any] = recorded(f"recorded_{engine}.json")[probe]
    return [known[one.name] for one in conversations()]


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_template_gets_what_the_engine_gives_it(
    engine: str, probe: str, templates: dict[str, Template]
) -> None:
    found = list(differences(templates[probe], engine, theirs(engine, probe)))
    assert not found, found[0].place()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_recorded_conversations_meet_both_answers(engine: str) -> None:
    answers = [text for probe in PROBES for text in theirs(engine, probe)]
    assert len(conversations()) > 100
    assert 10 < answers.count(None) < len(answers) / 3


@needs_families
@pytest.mark.parametrize("engine", ENGINES)
def test_real_templates_write_what_they_write_in_the_engine(engine: str) -> None:
    known: dict[str, str] = recorded(f"recorded_renders_{engine}.json")
    names, wrong, rendered = [one.name for one in conversations()], [], 0
    for template in real_templates(FAMILIES):
        wanted = known[template.name].split()
        texts = [
            None if want == "refused" else template.text(one, engine)
            for one, want in zip(conversations(), wanted, strict=True)
        ]
        rendered += len(wanted) - wanted.count("refused")
        wrong += [
            (template.name, name)
            for name, want, got in zip(names, wanted, digests(texts), strict=True)
            if want != got
        ]
    assert len(wrong) <= rendered / 100, wrong
    assert {name for _, name in wrong} <= NAMED.get(engine, set()), wrong


NAMED: dict[str, set[str]] = {}
"""Shapes that are known to differ; the page about engines gives the reasons."""
