"""Lint tells broken templates from fixed ones by most of the causes that vendors name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pytest

from tests.io.lint.lint_folders import folder, lint
from tests.io.lint.vendor_fixes import ADVICE, DIFF, FIXES, HISTORY, MISSED, REFUSED, Fix
from tito_core.seams.case import TurnKind
from tito_io.lint.diff import differences
from tito_io.lint.report import Finding, LintReport

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "lint.md"
ALL = "TITO_VENDOR_FIXES" in os.environ
JUDGED = FIXES if ALL else tuple(fix for fix in FIXES if fix.seen in {"Gemma 4", "Phi-3"})[:2]
"""Two of the fixes, unless all are asked for: each takes a second."""
STOPS = ("<|im_end|>", "<eos>", "<pad>")


@cache
def report(template: str) -> LintReport:
    """Return the report of a template, made once: most fixed ones are the same."""
    with TemporaryDirectory() as place:
        found = lint(folder(Path(place) / "model", template), stops=STOPS)
    assert found.error is None
    return found


def first_difference(fix: Fix) -> str:
    """Return the first way in which the broken template differs."""
    broken, fixed = report(fix.broken), report(fix.fixed)
    pairs = list(_pairs(broken, fixed))
    if any(one.refused and not other.refused for one, other in pairs):
        return REFUSED
    if any(one.history_rewritten and not other.history_rewritten for one, other in pairs):
        return HISTORY
    if set(broken.advice) - set(fixed.advice):
        return ADVICE
    return DIFF if differences(broken, fixed) else MISSED


def _pairs(one: LintReport, other: LintReport) -> Iterator[tuple[Finding, Finding]]:
    """Yield the findings of each case in both; a content that is not linted is written as an empty one."""
    known = {(found.kind, found.shape, found.cut): found for found in other.looks[0].findings}
    for found in one.looks[0].findings:
        content = "empty" if found.kind.content in ("null", "absent") else found.kind.content
        kind = found.kind if (found.kind, found.shape, found.cut) in known else _with(found, content)
        yield found, known[kind, found.shape, found.cut]


def _with(found: Finding, content: str) -> TurnKind:
    return attrs.evolve(found.kind, content=content)


@pytest.mark.parametrize("fix", JUDGED, ids=lambda fix: fix.cause)
def test_a_cause_is_found_as_the_page_says(fix: Fix) -> None:
    assert first_difference(fix) == fix.found_by
    assert bool(fix.why) == (fix.found_by in {DIFF, MISSED})


def test_most_causes_are_found_without_a_comparison() -> None:
    assert sum(fix.found_by in {REFUSED, HISTORY, ADVICE} for fix in FIXES) > 0.51 * len(FIXES)


def test_the_page_has_all_causes() -> None:
    rows = [f"| {fix.cause} | {fix.seen} | {fix.found_by}{': ' * bool(fix.why)}{fix.why} |" for fix in FIXES]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")
