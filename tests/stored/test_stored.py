"""What a released version stored is read with equal values."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.stored.values import CALLS, COMMITS, FIRST, POLICY, TRAJECTORY, profile, stitched
from tito_core import Policy, Step, Trajectory
from tito_core.data import from_data, to_data
from tito_core.seams import profile as profiles
from tito_core.seams.profile import Profile
from tito_io.conform import scenario
from tito_io.samples.line_groups import ReadOptions
from tito_io.samples.progress import RunProgress
from tito_io.samples.read import StoredConversation, conversations
from tito_io.serve import commit as commits
from tito_io.serve import sqlite
from tito_io.serve.commit import Commit, decode
from tito_io.serve.session import SessionHead
from tito_io.serve.sqlite import SqliteStore

VERSIONS = sorted(Path(__file__).parent.glob("v[0-9]*"))
of_each_version = pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)


def test_the_first_version_has_files() -> None:
    assert "v1.0" in [folder.name for folder in VERSIONS]


def data(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def keeps(new: Any, old: Any) -> bool:
    """Tell whether new data have all keys and values of old data; a new version may add keys.

    >>> keeps({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}), keeps({"a": [1]}, {"a": [1, 2]})
    (True, False)
    """
    if isinstance(old, Mapping):
        return isinstance(new, Mapping) and all(key in new and keeps(new[key], old[key]) for key in old)
    if isinstance(old, list):
        return isinstance(new, list) and all(keeps(one, other) for one, other in zip_longest(new, old))
    return bool(new == old)


@of_each_version
def test_plain_data_are_read(folder: Path) -> None:
    assert from_data(data(folder / "policy.json"), Policy) == POLICY
    trajectory = from_data(data(folder / "trajectory.json"), Trajectory)
    assert [*trajectory] == [*TRAJECTORY]
    assert trajectory[1].media == TRAJECTORY[1].media
    assert trajectory[1].prompt_ledger == TRAJECTORY[1].prompt_ledger
    assert from_data([to_data(one) for one in TRAJECTORY], Trajectory) == trajectory


@of_each_version
def test_pickles_are_read(folder: Path) -> None:
    step, trajectory = (
        pickle.loads((folder / f"{name}.pickle").read_bytes())  # noqa: S301  # the project's own file
        for name in ("step", "trajectory")
    )
    assert (type(step), step) == (Step, FIRST)
    assert (type(trajectory), [*trajectory]) == (Trajectory, [*TRAJECTORY])


@of_each_version
def test_a_profile_is_read_and_proves_what_it_knew(folder: Path) -> None:
    stored = data(folder / "profile.json")
    read = from_data(stored, Profile)
    assert keeps(to_data(read), stored)
    assert len(read.cases) == 1
    assert stitched(read) == stitched(profile())


@of_each_version
def test_calls_are_read(folder: Path) -> None:
    (talk,) = conversations(folder / "calls.jsonl", ReadOptions(), RunProgress())
    assert isinstance(talk, StoredConversation)
    assert (talk.name, talk.forest.calls) == ("talk", CALLS)


@of_each_version
def test_rows_are_those_that_were_written(folder: Path) -> None:
    command = [sys.executable, "-m", "tito_io", "samples", str(folder / "calls.jsonl")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows, stored = (
        [json.loads(line) for line in text.splitlines()]
        for text in (done.stdout, (folder / "rows.jsonl").read_text(encoding="utf-8"))
    )
    assert len(stored) == 1
    assert keeps(rows, stored)


@pytest.mark.anyio
@of_each_version
async def test_a_sqlite_file_of_sessions_is_read(folder: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(folder / "sessions.sqlite", tmp_path))
    store = SqliteStore.open(path)
    try:
        assert await store.secret(bytes([1] * 32)) == bytes(32)
        stored = await store.load("talk")
    finally:
        await store.aclose()
    assert SessionHead.of(stored.head) == SessionHead(created=1000.0, defaults={"temperature": 1.0})
    read: dict[str, Commit] = {}
    for _, row in sorted(stored.rows.items()):
        commit = decode(row, read)
        read[commit.name] = commit
    assert tuple(read.values()) == COMMITS


def test_the_page_about_compatibility_has_the_versions_of_today() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
    shown = [int(one) for one in re.findall(r"`, now (\d+) \|", page)]
    assert shown == [profiles.VERSION, commits.VERSION, sqlite.VERSION, scenario.VERSION]
