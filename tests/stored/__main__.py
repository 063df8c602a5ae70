"""Write the stored files of this version:  python -m tests.stored FOLDER."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import anyio

from tests.stored.values import CALLS, COMMITS, POLICY, TRAJECTORY, profile
from tito_core.data import to_data
from tito_io.samples.forms.tito import write_calls
from tito_io.serve.commit import encode
from tito_io.serve.session import SessionHead
from tito_io.serve.sqlite import SqliteStore


def write(folder: Path) -> None:
    """Write one file of each kind; rows are written by `tito samples`."""
    folder.mkdir(parents=True)
    for name, value in (("policy", POLICY), ("trajectory", TRAJECTORY), ("profile", profile())):
        _json(folder / f"{name}.json", to_data(value))
    (folder / "step.pickle").write_bytes(pickle.dumps(TRAJECTORY[0], protocol=4))
    (folder / "trajectory.pickle").write_bytes(pickle.dumps(TRAJECTORY, protocol=4))
    with (folder / "calls.jsonl").open("wb") as file:
        write_calls(file, "talk", CALLS)
    anyio.run(_sessions, folder / "sessions.sqlite")


def _json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


async def _sessions(path: Path) -> None:
    store = SqliteStore.open(path, durable=True)
    await store.secret(bytes(32))
    await store.create("talk", SessionHead(created=1000.0, defaults={"temperature": 1.0}).encoded())
    epoch = (await store.claim("talk")).epoch
    for place, commit in enumerate(COMMITS):
        await store.put("talk", epoch, place, encode(commit, COMMITS[place - 1] if place else None))
    await store.aclose()
    path.with_name(f"{path.name}.lock").unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
