"""Prompts that engines wrote themselves, as recorded, have no drift if the audit knows the engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.engines.preprocessing.compare import PROBES, recorded_forms
from tests.engines.preprocessing.shapes import Conversation, conversations
from tito_core import Step, render_key
from tito_core.samples import StoredCall
from tito_io.audit.command import DRIFT, audit
from tito_io.cli.errors import BAD_INPUT
from tito_io.embedded import write_family
from tito_io.families import Family
from tito_io.samples.forms.tito import line

DAY = "(day)"
"""What is recorded in the place of a date."""


def stored(one: Conversation, text: str, family: Family, engine: str | None) -> bytes:
    """Return the line of a call whose prompt an engine wrote."""
    step = Step(
        prompt=one.messages,
        completion=[{"role": "assistant", "content": "yes"}],
        prompt_ids=family.encode(text),
        completion_ids=family.encode("yes"),
        key=render_key(one.tools or ()),
    )
    return line(one.name, StoredCall(name="t0", order=0, step=step), engine=engine)


def audited(folder: Path, probe: str, written_by: str, named: str | None, *options: str) -> Result:
    """Audit what one engine wrote, in a file that names an engine."""
    (folder / "chat_template.jinja").write_text(PROBES[probe])
    family, (_, texts) = Family.load(folder), recorded_forms(written_by, probe)
    given = zip(conversations(), texts, strict=True)
    prompts = [(one, text) for one, text in given if text is not None and DAY not in text]
    file = folder / "calls.jsonl"
    file.write_bytes(b"".join(stored(one, text, family, named) for one, text in prompts))
    return CliRunner().invoke(audit, [str(file), "--family", str(folder), *options], env={"COLUMNS": "160"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_family(tmp_path / "family")


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_engine_that_the_file_names_has_no_drift(engine: str, probe: str, folder: Path) -> None:
    result = audited(folder, probe, engine, engine)
    assert result.exit_code == 0, result.output
    assert "no drift" in result.stdout


@pytest.mark.parametrize(
    ("named", "options"), [(None, ()), ("vllm", ("--as", "transformers")), ("sglang", ())]
)
def test_the_prompts_of_another_engine_have(
    named: str | None, options: tuple[str, ...], folder: Path
) -> None:
    assert audited(folder, "texts", "vllm", named, *options, "--fail-on", "hypothetical").exit_code == DRIFT


def test_a_file_of_several_engines_or_of_an_unknown_one_is_refused_by_name(folder: Path) -> None:
    family, one = Family.load(folder), conversations()[0]
    file = folder / "calls.jsonl"
    for named in (["sglang", "vllm"], ["foo"]):
        file.write_bytes(b"".join(stored(one, "x", family, name) for name in named))
        result = CliRunner().invoke(audit, [str(file), "--family", str(folder)])
        assert result.exit_code == BAD_INPUT
        assert f"has prompts of {' and '.join(named)}; choose the rules with --as" in result.output
