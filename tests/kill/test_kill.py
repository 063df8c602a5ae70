"""Kills lose, double and change no acknowledged turn, and the command finds where something does."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from click.testing import CliRunner

from tests.faults.fault import ROOT
from tests.interrupts import interrupt
from tests.io.serve.redis_server import Redis, wanted
from tests.kill.command import main
from tests.kill.kinds import KINDS
from tests.kill.rounds import FIGURES, Outcome, play
from tests.simulate.checker import by_rule
from tests.simulate.history import History
from tests.simulate.real import RealWorld

needs_redis = pytest.mark.skipif(not wanted(), reason="there is no redis-server: TITO_REDIS=1 demands one")
Edit = Callable[[sqlite3.Connection, str, int, dict[str, Any]], object]


def test_kills_on_sqlite_lose_no_acknowledged_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs Redis is left out without it, and named."""
    monkeypatch.setenv("TITO_REDIS_SERVER", "no-such-program")
    done = CliRunner().invoke(main, ["--kills", "3", "--clients", "4"])
    assert done.exit_code == 0, done.output
    assert "left out, and not tried: redis, pair, redis-server, pause: no Redis server" in done.output
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("kills: 3, ")]
    assert "lost: 0, trained twice: 0, wrong ids: 0, other: 0" in line
    assert "acknowledged turns: 0" not in line


@needs_redis
@pytest.mark.parametrize(("name", "kills"), [("pair", 2), ("redis-server", 1), ("pause", 1)])
def test_kills_on_redis_lose_no_acknowledged_turn(name: str, kills: int) -> None:
    outcome = Outcome.of(asyncio.run(play(KINDS[name], kills, 4, 1, bool)), kills)
    assert not any(outcome.figures.values()), outcome.found
    assert outcome.acknowledged > 5


def lose(db: sqlite3.Connection, name: str, place: int, row: dict[str, Any]) -> None:
    """Delete a turn."""
    del row
    db.execute("DELETE FROM turns WHERE name = ? AND place = ?", (name, place))


def double(db: sqlite3.Connection, name: str, place: int, row: dict[str, Any]) -> None:
    """Store a turn once more, as that of another response."""
    del place
    (last,) = db.execute("SELECT MAX(place) FROM turns WHERE name = ?", (name,)).fetchone()
    again = {**row, "name": f"{row['name']}-again", "response": f"{row['response']}-again", "order": last + 1}
    db.execute("INSERT INTO turns VALUES (?, ?, ?)", (name, last + 1, orjson.dumps(again)))
    db.execute("INSERT INTO unreceived VALUES (?, ?)", (name, last + 1))


def change(db: sqlite3.Connection, name: str, place: int, row: dict[str, Any]) -> None:
    """Change an id."""
    first, *rest = row["sampled"]
    data = orjson.dumps({**row, "sampled": [first ^ 1, *rest]})
    db.execute("UPDATE turns SET data = ? WHERE name = ? AND place = ?", (data, name, place))


@pytest.mark.parametrize(
    ("edit", "figure"), [(lose, "lost"), (double, "trained twice"), (change, "wrong ids")]
)
def test_what_is_planted_in_the_store_is_found(edit: Edit, figure: str) -> None:
    """The last turns of all sessions are edited while the gateway is down; clients have received them."""

    async def planted(world: RealWorld, _: Redis | None) -> None:
        while _taken(world.history) < 20:  # noqa: ASYNC110  # nothing announces it
            await asyncio.sleep(0.01)
        world.kill()
        options = world.gateways[0].options
        _edit_all(options[options.index("--store") + 1].removeprefix("sqlite:"), edit)
        await world.start()

    kind = attrs.evolve(KINDS["sqlite"], strike=planted)
    outcome = Outcome.of(asyncio.run(play(kind, 1, 6, 1, bool)), 1)
    others = {name: count for name, count in outcome.figures.items() if name in FIGURES and name != figure}
    assert outcome.figures[figure] > 0, outcome.found
    assert not any(others.values()), outcome.found


def _taken(history: History) -> int:
    return sum(one.answer is not None and one.answer.taken for one in history.attempts)


def _edit_all(path: str, edit: Edit) -> None:
    """Edit the received turns that no other one continues."""
    with closing(sqlite3.connect(path)) as db, db:
        found = [
            (*key, orjson.loads(data)) for *key, data in db.execute("SELECT name, place, data FROM turns")
        ]
        continued = {row["parent"] for _, _, row in found}
        unreceived = set(db.execute("SELECT name, place FROM unreceived"))
        for name, place, row in found:
            if row["name"] not in continued and (name, place) not in unreceived:
                edit(db, name, place, row)


def test_each_figure_counts_rules_of_the_checker() -> None:
    rules = [rule for names in FIGURES.values() for rule in names]
    assert set(rules) <= set(by_rule(History(time.monotonic, 0.0)))
    assert len(set(rules)) == len(rules)


def test_the_page_says_what_each_kind_and_each_figure_is() -> None:
    page = (ROOT / "docs/reference/simulation.md").read_text()
    assert [name for name in (*KINDS, *Outcome().figures) if f"| `{name}` |" not in page] == []


def test_a_run_that_finds_something_fails_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*_: object) -> History:
        history = History(time.monotonic, time.monotonic())
        history.odd.append("a session does not go on")
        return history

    monkeypatch.setattr("tests.kill.command.play", found)
    done = CliRunner().invoke(main, ["--kills", "1", "--kind", "sqlite"])
    assert done.exit_code == 1
    assert "a session does not go on" in done.stderr
    assert Path(done.stderr.rpartition("what happened: ")[2].strip()).read_text() == ""


def test_nothing_is_tried_without_redis_if_only_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TITO_REDIS_SERVER", "no-such-program")
    done = CliRunner().invoke(main, ["--kind", "pair"])
    assert (done.exit_code, "no Redis server" in done.output) == (2, True)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(by: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.kill", "--kind", "sqlite", "--clients", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=-1, stderr=-1, text=True) as run:
        while not (children := _children(run.pid)):
            assert run.poll() is None
            time.sleep(0.05)
        printed, complained = interrupt(run, by)
    assert complained == "interrupted\n"
    assert "kills: 0, acknowledged turns: 0" in printed
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []


def _children(pid: int) -> list[str]:
    """Return the processes that any thread of a process has started."""
    return [
        one for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()
    ]
