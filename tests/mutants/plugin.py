"""A pytest plugin: run chosen tests, the fastest first, write what became of them, and end where one hangs.

`TITO_MUTANTS` names a folder. `chosen.json` in it has the seconds of each chosen test; without it all run.
`log` gets a line for each test that begins and for each phase that ends.
"""

from __future__ import annotations

import faulthandler
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("TITO_MUTANTS", "."))
ALLOWED, FACTOR = 20, 10
"""A test hangs if it takes these seconds, and so many times those that it took without a fault."""
LOADED = 120
"""Seconds in which all chosen tests are loaded."""


def _chosen() -> dict[str, float] | None:
    path = FOLDER / "chosen.json"
    return json.loads(path.read_text()) if path.exists() else None


def _log(*words: object) -> None:
    with (FOLDER / "log").open("a") as file:
        print(*words, file=file)


def pytest_configure() -> None:
    """End the process if the tests cannot be loaded in time."""
    faulthandler.dump_traceback_later(LOADED, exit=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what is chosen, in the order of its seconds."""
    if (chosen := _chosen()) is not None:
        items[:] = sorted((one for one in items if one.nodeid in chosen), key=lambda one: chosen[one.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process if the test hangs."""
    chosen = _chosen()
    _log("began", 0, item.nodeid)
    faulthandler.cancel_dump_traceback_later()
    if chosen is not None:
        faulthandler.dump_traceback_later(ALLOWED + FACTOR * chosen[item.nodeid], exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write what became of a phase of a test."""
    _log(report.outcome, round(report.duration, 4), report.nodeid)
