"""Real agent programs, each in an environment of its own, against `tito serve` without a flag.

The environment variable TITO_AGENTS lists those to run, as in `TITO_AGENTS=qwen-code,mini-swe-agent`. Each is
installed once, outside the checkout.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from .catalogue import AGENTS, PROGRAMS
from .program import PINS, Program, environment
from .run import run


@pytest.mark.xdist_group("agents")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_an_agent_runs_to_its_end_and_every_sampled_id_trains_once(
    program: Program, tmp_path: Path, say: Callable[[str], None]
) -> None:
    wanted = [one.strip() for one in os.environ.get("TITO_AGENTS", "").split(",")]
    if program.agent not in wanted:
        pytest.skip(f"needs {program.agent}: ask for it with TITO_AGENTS={program.agent}")
    place = environment(program.agent)
    place.ready(say)
    found = run(program, place.folder, tmp_path / "run")
    say(found.line())
    assert found.status == 0, found.report()
    assert found.refused == [], found.report()
    assert found.rows == program.rows, found.report()
    assert found.mislabelled == [], found.report()
    assert found.extending == len([turn for turn in found.turns if turn.talks]) - program.rows, found.report()
    assert len(found.by_messages) < program.rows, found.report()  # a row may begin by ids, too
    assert found.drifted == found.sampled.total(), found.report()
    assert found.sampled == found.trained, found.report()


@pytest.mark.parametrize("agent", AGENTS)
def test_versions_are_pinned_exactly(agent: str) -> None:
    pins = environment(agent).pins()
    assert {program.package for program in PROGRAMS if program.agent == agent} <= pins.keys()
    assert all(version[0].isdigit() for version in pins.values())


def test_all_pins_are_of_agents() -> None:
    assert sorted(file.stem for file in PINS.iterdir()) == sorted(AGENTS)
