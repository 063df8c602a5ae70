"""Faults planted in a copy of the gateway, each of which some seed must find."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.fault import ROOT, Fault

GATEWAY = "tito_io"
PLANTED = (
    Fault(
        "a deleted session comes back with the next turn",
        "serve/sqlite.py",
        'return self._changed("DELETE FROM sessions WHERE name = ?", name) > 0',
        'return self._changed("UPDATE sessions SET touched = 0 WHERE name = ?", name) > 0',
        package=GATEWAY,
    ),
    Fault(
        "a session that is deleted stays in the other gateway's memory",
        "serve/redis.py",
        "if redis.call('EXISTS', KEYS[1]) == 0 then return {-1, 0, 0} end\nlocal rows",
        "local rows",
        package=GATEWAY,
    ),
    Fault(
        "--durable does nothing",
        "serve/sqlite.py",
        "{'FULL' if durable else 'NORMAL'}",
        "NORMAL",
        package=GATEWAY,
    ),
    Fault(
        "a turn is acknowledged before it is stored",
        "serve/turn_handler.py",
        """            commits = await self._commit(session, turn)
            try:
                if not connection.gone:
                    await send_end()
            finally:""",
        """            if not connection.gone:
                await send_end()
            commits = await self._commit(session, turn)
            try:
                pass
            finally:""",
        package=GATEWAY,
    ),
    Fault(
        "the lease of another gateway is not looked at",
        "serve/redis.py",
        "if holder and holder ~= ARGV[1] then return {-2, 0, 0} end\n",
        "",
        package=GATEWAY,
    ),
    Fault(
        "a turn whose client is gone stays stored, and is sampled again",
        "serve/turn_handler.py",
        "await session.take_back(new)",
        "await session.received(commits)",
        package=GATEWAY,
    ),
    Fault(
        "a cancelled turn is stored twice",
        "serve/session.py",
        """            with self._writing():
                await self.store.take_back(self.name, self.epoch, commit.call.order)
""",
        """            place = commit.call.order + 1
            await self.store.put(self.name, self.epoch, place, encode(commit, None))
""",
        package=GATEWAY,
    ),
    Fault(
        "two sessions use one session's memory",
        "serve/sessions.py",
        "session = self.loaded.get(name)\n        known",
        "session = self.loaded.get(name) or next(iter(self.loaded.values()), None)\n        known",
        package=GATEWAY,
    ),
    Fault(
        "a turn gets the ids of the turn that was sampled before, maybe for another session",
        "serve/turns.py",
        "sampled = CompletedTurn.of(await sampler.turn_after(steps, request, known))",
        "sampled = CompletedTurn.of(await sampler.turn_after(steps, request, known))\n"
        "            sampled, _origin.last = getattr(_origin, 'last', sampled), sampled",
        package=GATEWAY,
    ),
    Fault(
        "equal requests with one key at once are sampled twice",
        "serve/sessions.py",
        "        if repeated is None:\n            yield",
        "        if True:\n            yield",
        package=GATEWAY,
    ),
)


def first_found(fault: Fault, most: int) -> int | None:
    """Return the first seed that finds a fault; None where `most` seeds do not."""
    with tempfile.TemporaryDirectory(prefix="tito-planted-") as folder:
        home = Path(folder)
        for name in ("tito_core", "tito_io", "tests", "benchmarks"):
            shutil.copytree(ROOT / name, home / name)
        fault.plant(home)
        code = (
            "import sys\nfrom tests.simulate.run import run\n"
            f"for seed in range({most}):\n"
            "    try:\n        found = run(seed).violations\n"
            "    except Exception as error:\n        found = [repr(error)]\n"
            "    if found:\n        print(seed)\n        break\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(home), *sys.path])}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=home,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return int(done.stdout) if done.stdout else None
