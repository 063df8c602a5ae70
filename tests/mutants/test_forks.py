"""A mutant is judged in a fork as in a process of its own, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.children import Children
from tests.faults.fault import ROOT
from tests.mutants.forks import functions_by_file, patch
from tests.mutants.room import run_tests
from tests.mutants.trial import FORKS

CODE = """
import os

LIMIT = 3
EVEN = [x for x in range(4) if x % 2 == 0]

def double(x):
    return x * 2

def slow(x):
    return x

def apart(x):
    return x + 1

class Box:
    size: int = 1

    def grown(self, by=1):
        return [self.size + by for _ in (0,)][0]

    @property
    def half(self):
        return (lambda x: x / 2)(self.size)

def adder(n):
    def add(x):
        return x + n
    return add

add_one = adder(1)
"""
TESTS = """
import os, subprocess, sys
from code_of import Box, add_one, apart, double, slow

def test_double():
    assert double(2) == 4

def test_slow():
    assert slow(1) == 1

def test_elsewhere():
    command = [sys.executable, "-c", "import code_of; print(code_of.apart(1))"]
    assert subprocess.run(command, capture_output=True).stdout == b"2\\n"

def test_only_where_it_was_loaded():
    assert os.environ["LOADED_BY"] == str(os.getpid())
"""


def loaded(folder: Path) -> dict[str, object]:
    path = folder / "code_of.py"
    path.write_text(CODE)
    names: dict[str, object] = {"__name__": "code_of"}
    exec(compile(CODE, str(path), "exec"), names)  # noqa: S102  # it is above
    return names


def patched(folder: Path, right: str, wrong: str) -> tuple[bool, dict[str, object]]:
    names, path = loaded(folder), str(folder / "code_of.py")
    assert CODE.count(right) == 1
    return patch(functions_by_file()[path], path, CODE, CODE.replace(right, wrong)), names


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("x * 2", "x * 3", "double(2) == 6"),
        ("self.size + by", "self.size - by", "Box().grown() == 0"),
        ("x / 2", "x / 4", "Box().half == 0.25"),
        ("x + n", "x - n", "add_one(3) == 2"),
    ],
)
def test_functions_get_other_code(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    done, names = patched(tmp_path, right, wrong)
    assert done
    assert eval(said, names)  # noqa: S307  # it is above


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("x % 2 == 0", "x % 2 == 1"),
        ("size: int = 1", "size: int = 2"),
        ("by=1", "by=2"),
        ("add_one = adder(1)", "add_one = adder(2)"),
        ("return x + n", "return x"),
    ],
)
def test_what_has_taken_effect_already_is_left_out(tmp_path: Path, right: str, wrong: str) -> None:
    done, names = patched(tmp_path, right, wrong)
    assert not done
    found = eval("LIMIT, EVEN, Box().grown(), add_one(1)", names)  # noqa: S307  # likewise
    assert found == (3, [0, 2], 2, 2)


def test_mutants_are_judged_in_forks(tmp_path: Path) -> None:
    """One is killed, one in another process, one survives; one ends its process, one is no function."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "tests").symlink_to(ROOT / "tests")
    (home / "code_of.py").write_text(CODE)
    (home / "test_it.py").write_text(
        TESTS.replace("import os, ", "import os; os.environ['LOADED_BY'] = str(os.getpid())\nimport ")
    )
    names = ["test_only_where_it_was_loaded", "test_double", "test_slow", "test_elsewhere"]
    tests = [f"test_it.py::{name}" for name in names]
    changes = [
        ("x * 2", "x * 3"),
        ("x + 1", "x + 2"),
        ("x / 2", "x / 4"),
        ("    return x\n\ndef apart", "    os._exit(0)\n\ndef apart"),
        ("LIMIT = 3", "LIMIT = 4"),
    ]
    mutants = [
        {"file": "code_of.py", "right": CODE, "wrong": CODE.replace(*change), "tests": tests}
        for change in changes
    ]
    (tmp_path / "mutants.json").write_text(json.dumps(mutants))
    (tmp_path / "chosen.json").write_text(json.dumps(dict.fromkeys(tests, 0.0)))
    with Children() as children:
        run_tests(home, tmp_path, ["test_it.py"], children, "faults", *FORKS)
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts").read_text().splitlines()]
    assert verdicts == [
        {"number": 0, "killed": True, "why": tests[1]},
        {"number": 1, "killed": True, "why": tests[3]},
        {"number": 2, "killed": False, "why": ""},
    ]
    assert (home / "code_of.py").read_text() == CODE
