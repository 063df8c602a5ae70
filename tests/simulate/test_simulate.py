"""The gateway under simulated faults: seeds find nothing, find planted faults, and repeat themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from click.testing import CliRunner

from tests.faults.fault import ROOT, Fault
from tests.simulate.command import main
from tests.simulate.planted import PLANTED
from tests.simulate.run import run
from tito_io.serve.session import Session

pytestmark = pytest.mark.usefixtures("light_heap")
SEEDS, BRIEF, BLOCK = 150, 50, 25
BLOCKS = [
    *range(0, BRIEF, BLOCK),
    *(pytest.param(one, marks=pytest.mark.whole) for one in range(BRIEF, SEEDS, BLOCK)),
]
ALONE = "import sys; from tests.simulate.run import run; sys.stdout.write(run(5).timeline)"


@pytest.mark.parametrize(
    "seed",
    [
        # The store failed after it had deleted the row of a turn that a repeated request waited for.
        *(4431, 8222),
        # A gateway ended before it had stored all turns of a response, and two requests ask for it.
        *(3888, 6791),
    ],
)
def test_seeds_that_once_found_something_find_nothing(seed: int) -> None:
    assert not run(seed).violations


@pytest.mark.parametrize("first", BLOCKS)
def test_no_history_contradicts_the_documentation(first: int) -> None:
    """`python -m tests.simulate --seed N` shows the timeline of a seed that fails here."""
    counts = Counter[str]()
    for seed in range(first, first + BLOCK):
        result = run(seed)
        assert not result.violations, (seed, result.violations)
        counts.update(result.counts)
    assert all(counts[name] > 5 for name in ("received", "deaths", "deleted", "turns")), counts
    assert counts["attempts"] > counts["received"]


@pytest.mark.whole
def test_a_seed_repeats_itself_in_another_process_too() -> None:
    """Neither what ran before nor the order of sets of strings changes a timeline."""
    first = run(5).timeline
    assert run(6).timeline != first
    assert run(5).timeline == first
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", ALONE], env=environment, check=True, capture_output=True, text=True
    )
    assert other.stdout == first


@pytest.mark.whole
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn whose client is gone stays in the rows, and counts as received."""
    monkeypatch.setattr(Session, "take_back", Session.received)
    assert any(run(seed).violations for seed in range(80))


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.what)
def test_the_text_of_a_planted_fault_occurs_once(fault: Fault) -> None:
    assert (ROOT / fault.package / fault.file).read_text().count(fault.right) == 1


def test_the_command_shows_a_timeline() -> None:
    done = CliRunner().invoke(main, ["--seed", "5"])
    assert done.exit_code == 0
    assert "gateway-1   listens, start 1" in done.output
    assert "seed 5: violations: 0; attempts: " in done.output


def test_the_page_says_what_each_word_of_the_summary_counts() -> None:
    page = (ROOT / "docs/reference/simulation.md").read_text()
    assert [name for name in run(5).counts if f"| `{name}` |" not in page] == []


def test_the_command_needs_to_know_what_to_run() -> None:
    assert "--seeds N" in CliRunner().invoke(main, []).output
