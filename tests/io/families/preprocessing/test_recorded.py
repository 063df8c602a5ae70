"""Prompts that are rendered here against those that engines made of the same conversations, as recorded.

`python -m tests.engines.preprocessing ENGINE --record` records them anew.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.engines.preprocessing.compare import (
    PROBES,
    Difference,
    Template,
    differences,
    probes,
    real_templates,
    recorded_forms,
    table,
    unnamed,
)
from tests.engines.preprocessing.shapes import conversations
from tests.model_folders import FAMILIES, needs_families
from tito_io.cli.options import RENDERED_AS
from tito_io.embedded import write_family
from tito_io.families.preprocessing.engines import RULES

ENGINES = ("vllm", "sglang", "dynamo", "llamacpp")


def test_the_command_line_names_the_engines_of_the_table() -> None:
    assert list(RENDERED_AS) == list(RULES)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> list[Template]:
    return list(probes(write_family(tmp_path_factory.mktemp("probes") / "family")))


@pytest.fixture(scope="module")
def real() -> list[Template]:
    return list(real_templates(FAMILIES))


def compared(engine: str, templates: Iterable[Template]) -> list[Difference]:
    """Return what an engine renders differently; each has a reason in the table."""
    found: list[Difference] = []
    for template in templates:
        form, theirs = recorded_forms(engine, template.name)
        found += differences(template, engine, theirs, form)
    bare = unnamed(found)
    assert not bare, (bare[0], bare[0].place())
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_template_gets_what_the_engine_gives_it(engine: str, own: list[Template]) -> None:
    compared(engine, own)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_recorded_conversations_meet_both_answers(engine: str) -> None:
    answers = [text for probe in PROBES for text in recorded_forms(engine, probe)[1]]
    assert len(conversations()) > 100
    assert 10 < answers.count(None) < len(answers) / 3


@needs_families
@pytest.mark.parametrize("engine", ENGINES)
def test_real_templates_write_what_they_write_in_the_engine(
    engine: str, own: list[Template], real: list[Template]
) -> None:
    found = compared(engine, [*own, *real])
    rows = {name: row for name, row in table().items() if engine in row.patterns["engines"]}
    idle = [name for name, row in rows.items() if not any(row.names(one) for one in found)]
    assert not idle, "rows that name no difference"
