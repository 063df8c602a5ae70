"""Mutants that were judged to be no faults are still mutants of the code."""

from __future__ import annotations

import pytest

from tests.faults.fault import ROOT
from tests.mutants.score import Judged, equivalent, function_at, lines_of


@pytest.mark.parametrize("judged", equivalent(), ids=str)
def test_the_code_of_a_judged_mutant_is_still_there(judged: Judged) -> None:
    """In one function, or in the one that is named, so that no other mutant is taken for it."""
    source = (ROOT / judged.file).read_text()
    lines = lines_of(source)
    before = [line[1:] for line in judged.change.splitlines() if line[0] == "-"]
    places = [at for at in range(len(lines)) if lines[at : at + len(before)] == before]
    functions = {function_at(source, at + 1) for at in places}
    assert before
    assert len([one for one in functions if judged.function in (None, one)]) == 1
