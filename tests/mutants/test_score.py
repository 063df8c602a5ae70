"""Mutants that were judged to be no faults are still mutants of the code."""

from __future__ import annotations

import pytest

from tests.faults.fault import ROOT
from tests.mutants.score import equivalent


@pytest.mark.parametrize(("file", "change"), equivalent())
def test_the_code_of_a_judged_mutant_is_still_there(file: str, change: str) -> None:
    lines = [" ".join(line.split()) for line in (ROOT / file).read_text().splitlines()]
    before = [line[1:] for line in change.splitlines() if line[0] == "-"]
    assert before
    assert all(line in lines for line in before)
