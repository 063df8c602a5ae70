"""The harness itself, with a program that needs no installation: what goes wrong is seen."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import pytest

from .__main__ import Line, markdown
from .engine import CALLS
from .program import Program, library
from .run import LATE, Outcome, _at_home, run


def plain(way: str = "") -> Program:
    return library("plain", way)


def outcome(program: Program, folder: Path) -> Outcome:
    return run(program, Path(sys.prefix), folder)


def test_a_conversation_is_one_row_that_trains_every_id(tmp_path: Path) -> None:
    found = outcome(plain(), tmp_path)
    assert found.status == 0, found.report()
    assert (len(found.turns), found.rows, found.beside) == (CALLS + 1, 1, 0)
    assert (found.extending, found.by_messages) == (CALLS, [])
    assert found.sampled == found.trained
    assert found.sampled.total() == CALLS + 1
    assert found.refused == []
    assert found.drifted == CALLS + 1
    assert f"{CALLS + 1} turns, {CALLS} by ids, 0 by messages, 1 rows and 0 beside" in found.line()
    assert "rows      1" in found.report()


def test_a_program_that_changes_what_it_was_told_makes_rows(tmp_path: Path) -> None:
    found = outcome(plain("edits"), tmp_path)
    assert found.status == 0, found.report()
    assert (found.extending, found.by_messages) == (0, ["NO_PREFIX"] * CALLS)
    assert found.rows == CALLS + 1


def test_a_call_without_tools_is_beside_the_conversation(tmp_path: Path) -> None:
    found = outcome(plain("titles"), tmp_path)
    assert (found.status, found.rows, found.beside) == (0, 1, 1), found.report()
    assert found.mislabelled == []
    assert [turn.talks for turn in found.turns] == [False, *[True] * (CALLS + 1)]


def test_a_call_beside_the_conversation_that_is_not_labelled_so_is_reported(tmp_path: Path) -> None:
    found = outcome(plain("tooled titles"), tmp_path)
    assert (found.status, found.rows, found.beside) == (0, 1, 1), found.report()
    assert len(found.mislabelled) == 1
    assert not Line("plain 1", found).good


def test_an_error_of_the_gateway_is_reported(tmp_path: Path) -> None:
    found = outcome(plain("errs"), tmp_path)
    assert found.status != 0
    assert [one.status for one in found.refused] == [400]
    assert "tool_choice" in found.report()


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    found = outcome(attrs.evolve(plain("hangs"), seconds=1), tmp_path)
    assert found.status == LATE
    assert "plain (hangs)" in found.report()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_no_process_stays_that_a_program_started(tmp_path: Path) -> None:
    """The program of cline leaves one behind, in a session of its own."""
    found = outcome(plain("stays"), tmp_path)
    assert found.status == 0, found.report()
    assert _at_home(tmp_path / "home") == []


def test_the_table_has_a_line_for_each_program(tmp_path: Path) -> None:
    good = Line("plain 1", outcome(plain(), tmp_path / "good"))
    bad = Line("plain 2", outcome(plain("errs"), tmp_path / "bad"))
    lines = [good, bad, Line("plain 3", None, "no such version")]
    assert [line.good for line in lines] == [True, False, False]
    total = sum(map(len, good.outcome.sampled.elements())) if good.outcome else 0
    table = markdown(lines).splitlines()
    assert len({line.count("|") for line in table}) == 1
    assert table[2].startswith(f"| plain 1 | chat | 9 | 8 | 1 | 1 |  | {total} of {total} | ")
    assert table[3].startswith("| plain 2 | exit status 1 | 1 (1 refused) | 0 | 0 | 0 |  | 0 of 0 | ")
    assert table[4].startswith("| plain 3 | no such version | ")
