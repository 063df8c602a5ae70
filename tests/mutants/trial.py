"""Whether tests notice a mutant."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import inf
from pathlib import Path

import attrs

from tests.faults.children import Children
from tests.faults.fault import Fault
from tests.mutants.mutant import Mutant
from tests.mutants.room import ReachedLines, run_tests

FEW = 5
"""Tests that may be all that is seen of a line which runs in other processes."""
NO_TESTS = 5
"""pytest's exit status where nothing was collected."""
FORKS = ("-p", "tests.mutants.forks")
"""Options with which pytest tries mutants in forks."""


@attrs.frozen
class Verdict:
    """What became of a mutant.

    Attributes:
        killed: Whether a test failed, hung, or could not be loaded.
        why: The test, and what it did.
    """

    killed: bool
    why: str


def rounds_of(
    mutant: Mutant, tests: Mapping[str, ReachedLines], unseen: Iterable[str] = (), most: float = inf
) -> list[dict[str, float]]:
    """Return the tests that reach a mutant's line, with their seconds: the file's own, then the others.

    The rest of the file's own come last: coverage does not see the lines that a generator runs after an error
    was thrown into one that it yields from.

    What runs on import belongs to no test: for such lines it is every test that reaches the file. If few
    tests reach a line, it is those of `unseen` files, too. A test of the file's own that reaches no line of
    it runs it in another process. Of others up to `most` seconds, those that are fast, and those that few of
    their file come before, as tests of one file often see the same.
    """
    line = {name for name, one in tests.items() if mutant.is_reached(one.lines)}
    files = {name: name.partition("::")[0] for name in tests}
    own_file = f"/test_{Path(mutant.file).name}"
    own = {name for name, file in files.items() if file == mutant.file or file.endswith(own_file)}
    chosen = line or own | {name for name, one in tests.items() if mutant.file in one.lines}
    chosen = chosen | {name for name in own if mutant.file not in tests[name].lines}
    if len(line) < FEW:
        own |= {name for name, file in files.items() if file in unseen}
        chosen |= own
    others = _mixed({name: tests[name].seconds for name in chosen - own})
    spent = accumulate(tests[name].seconds for name in others)
    fast = [name for name, end in zip(others, spent, strict=True) if end <= most]
    rounds = [chosen & own, fast, own - chosen]
    return [{name: tests[name].seconds for name in names} for names in rounds if names]


def _mixed(seconds: Mapping[str, float]) -> list[str]:
    """Return tests by their seconds, times how many of their file are as fast."""
    counts: Counter[str] = Counter()
    costs: dict[str, float] = {}
    for name in sorted(seconds, key=lambda name: (seconds[name], name)):
        file = name.partition("::")[0]
        counts[file] += 1
        costs[name] = seconds[name] * counts[file]
    return sorted(costs, key=costs.__getitem__)


def judged_in_forks(
    mutants: list[Mutant], rounds: list[list[dict[str, float]]], home: Path, folder: Path, children: Children
) -> dict[int, Verdict]:
    """Return what became of mutants, by number, as far as forks of one process can tell.

    The process loads all tests once, which takes longer than most tests. `rounds` are those of each mutant.
    """
    chosen = {name: seconds for each in rounds for one in each for name, seconds in one.items()}
    tries = [
        {
            "file": mutant.file,
            "right": mutant.right,
            "wrong": mutant.wrong,
            "tests": [name for one in each for name in sorted(one, key=chosen.__getitem__)],
        }
        for mutant, each in zip(mutants, rounds, strict=True)
    ]
    (folder / "mutants.json").write_text(json.dumps(tries))
    (folder / "chosen.json").write_text(json.dumps(chosen))
    (folder / "verdicts").write_text("")
    run_tests(home, folder, sorted({name.partition("::")[0] for name in chosen}), children, "faults", *FORKS)
    (folder / "chosen.json").unlink()
    found = [json.loads(line) for line in (folder / "verdicts").read_text().splitlines()]
    return {
        one["number"]: Verdict(
            one["killed"], one["why"] if one["killed"] else f"{len(tries[one['number']]['tests'])} tests pass"
        )
        for one in found
    }


def judged(
    mutant: Mutant, rounds: list[dict[str, float]], home: Path, folder: Path, children: Children
) -> Verdict:
    """Plant a mutant in a copy of the project, run rounds of tests until one fails, and take it out again."""
    planted = Fault("a mutant", mutant.file, mutant.right, mutant.wrong, package="")
    planted.plant(home)
    try:
        for chosen in rounds:
            (folder / "chosen.json").write_text(json.dumps(chosen))
            files = sorted({name.partition("::")[0] for name in chosen})
            status, log = run_tests(home, folder, files, children, "faults", "-x")
            if status not in (0, NO_TESTS):
                return _killed(log)
    finally:
        attrs.evolve(planted, right=mutant.wrong, wrong=mutant.right).plant(home)
        (folder / "chosen.json").unlink(missing_ok=True)
    return Verdict(killed=False, why=f"{sum(map(len, rounds))} tests pass")


def _killed(log: list[list[str]]) -> Verdict:
    failed = [test for outcome, _, test in log if outcome == "failed"]
    if failed:
        return Verdict(killed=True, why=f"{failed[0]:.160}")
    if log and log[-1][0] == "began":
        return Verdict(killed=True, why=f"{log[-1][2]} hangs")
    return Verdict(killed=True, why="the tests cannot be loaded")
