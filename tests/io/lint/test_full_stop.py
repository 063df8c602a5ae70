"""A verdict holds for turns that end in a full stop, which tokenizers merge with what follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.io.lint.lint_folders import chatml, lint
from tito_io.embedded.vocabulary import write_family
from tito_io.families.family import Family
from tito_io.lint import example_conversation
from tito_io.lint.example_conversation import ANSWER
from tito_io.lint.report import LintReport, Verdict

MERGED = ".\n\n"
"""A full stop and an empty line: one token of the vocabulary."""


def verdicts(report: LintReport) -> list[tuple[object, ...]]:
    return [
        (one.kind, one.shape, one.cut, one.verdict, one.reason)
        for look in report.looks
        for one in look.findings
    ]


def test_a_turn_that_ends_in_a_full_stop_has_the_verdict_of_its_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_family(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(chatml(close="\n\n"))
    assert len(Family.load(folder).encode(MERGED)) == 1
    known = lint(folder)
    monkeypatch.setattr(example_conversation, "ANSWER", f"{ANSWER}.")
    assert verdicts(lint(folder)) == verdicts(known)
    assert any(one.verdict is Verdict.EXACT for one in known.findings)
