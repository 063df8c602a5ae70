"""Which tests a mutant is tried with."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.room import ReachedLines
from tests.mutants.trial import rounds_of

MUTANT = Mutant("src/a.py", range(2, 3), "x\ny\n", "x\nz\n")


def reached(seconds: float, *lines: int, file: str = "src/a.py") -> ReachedLines:
    return ReachedLines(seconds, {file: list(lines)} if lines else {})


def test_a_file_s_own_tests_come_first_and_its_others_that_reach_another_line_last() -> None:
    tests = {
        "tests/test_a.py::near": reached(9.0, 2),
        "tests/test_a.py::other_line": reached(1.0, 1),
        "tests/test_a.py::in_a_process": reached(50.0),
        **{f"test_b.py::{number}": reached(1.0, 2) for number in range(5)},
        "test_b.py::other_line": reached(0.1, 3),
    }
    own, others, last = rounds_of(MUTANT, tests, most=3.0)
    assert own == {"tests/test_a.py::near": 9.0, "tests/test_a.py::in_a_process": 50.0}
    assert list(others) == [f"test_b.py::{number}" for number in range(3)]
    assert last == {"tests/test_a.py::other_line": 1.0}


def test_fast_tests_leave_room_for_those_of_other_files() -> None:
    tests = {f"test_b.py::{number}": reached(0.5, 2) for number in range(1, 9)}
    tests |= {"test_c.py::slow": reached(1.2, 2), "test_d.py::slower": reached(9.0, 2)}
    (others,) = rounds_of(MUTANT, tests, most=3.0)
    assert list(others) == ["test_b.py::1", "test_b.py::2", "test_c.py::slow", "test_b.py::3"]


def test_what_runs_on_import_is_tried_with_all_that_reach_the_file() -> None:
    tests = {"test_b.py::1": reached(1.0, 7), "test_c.py::1": reached(1.0, 2, file="src/c.py")}
    assert rounds_of(MUTANT, tests, unseen=["test_c.py"]) == [{"test_c.py::1": 1.0}, {"test_b.py::1": 1.0}]
