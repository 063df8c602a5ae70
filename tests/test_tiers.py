"""Which tests run: what is chosen without and with a path, and what workers are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.fault import ROOT
from tests.tiers import ALL, BRIEF, LEFT_OUT, REST, choose, is_left_out

TESTPATHS, ARGS = pytest.Config.ArgsSource.TESTPATHS, pytest.Config.ArgsSource.ARGS


def config(source: Any = TESTPATHS, **given: Any) -> Any:
    """Return what pytest knows when it begins."""
    option = {
        "tier": None,
        "collectonly": False,
        "usepdb": False,
        "numprocesses": None,
        "dist": "no",
        **given,
    }
    return SimpleNamespace(args_source=source, option=SimpleNamespace(**option))


@pytest.mark.parametrize(
    ("given", "tier", "dist"),
    [
        ({}, BRIEF, "worksteal"),
        ({"tier": ALL}, ALL, "loadgroup"),
        ({"tier": REST}, REST, "loadgroup"),
        ({"source": ARGS}, ALL, "no"),
        ({"numprocesses": 1}, BRIEF, "no"),
        ({"usepdb": True}, BRIEF, "no"),
    ],
)
def test_a_path_names_all_its_tests_and_none_the_brief_ones_on_all_cores(
    given: dict[str, Any], tier: str, dist: str
) -> None:
    made = config(**given)
    choose(made)
    assert (made.option.tier, made.option.dist) == (tier, dist)
    assert (made.option.numprocesses or 0) >= (dist != "no")


def test_a_worker_has_the_tests_that_its_run_has_and_starts_none() -> None:
    """It parses the arguments by itself, which choose nothing; and would start others, without end."""
    made = config()
    made.workerinput = {"tier": REST, "loadgroup": True}
    choose(made)
    assert (made.option.tier, made.option.loadgroup) == (REST, True)
    assert made.option.numprocesses is None


@pytest.mark.parametrize("pattern", LEFT_OUT)
def test_what_is_left_out_is_there(pattern: str) -> None:
    assert list(ROOT.glob(pattern))
    assert is_left_out(pattern.replace("*", ""))
