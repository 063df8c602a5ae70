"""A store in one file: what was acknowledged survives the end of the process, however sudden.

SQLite's write-ahead log, one connection, asked in a thread. A row is safe from the process's death as soon as
the system has it; `durable` waits for the disk too, which a power cut asks for. One gateway owns the file.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import anyio
import anyio.to_thread
import attrs

from tito_core import InputError

from .store import Claim, FencedError, GoneError, LostError, StoredSession, StoreError, beginning

T = TypeVar("T")
VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
  name TEXT PRIMARY KEY, head BLOB NOT NULL, epoch INTEGER NOT NULL, touched REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turns (
  name TEXT NOT NULL, place INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (name, place)) WITHOUT ROWID;
"""
TURN = "SELECT 1 FROM turns WHERE name = ? AND place = ?"


@attrs.define(eq=False)
class SqliteStore:
    """Sessions in a file; opened by `SqliteStore.open`."""

    path: Path
    _db: sqlite3.Connection
    _owner: int
    """The lock file's descriptor: the lock ends with the process."""
    shared: bool = attrs.field(default=False, init=False)
    clock: Callable[[], float] = time.time
    _lock: Lock = attrs.field(factory=Lock, init=False)
    """One statement at a time: the threads that ask share the connection."""

    @classmethod
    def open(cls, path: str | Path, *, durable: bool = False) -> Self:
        """Open the file, made where it is missing.

        Raises `InputError` where another gateway has it open, it is another program's, or its folder is not
        there: a folder that was misspelt must not begin a new life.
        """
        file = Path(path)
        if file.is_dir():
            raise InputError(f"--store sqlite:{file}: this is a folder; name a file in it")
        owner = _locked(file.with_name(f"{file.name}.lock"))
        try:
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # conversations are private
            db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            _prepared(db, durable=durable)
        except (sqlite3.Error, OSError) as error:
            os.close(owner)
            raise InputError(f"--store sqlite:{file}: {error}; name another file") from error
        return cls(file, db, owner)

    async def check(self) -> None:
        """Read from the file."""
        await self._run(partial(self._rows, "SELECT 1 FROM sessions LIMIT 1"))

    async def exists(self, name: str) -> bool:
        """Tell whether there is such a session."""
        return bool(await self._run(partial(self._rows, "SELECT 1 FROM sessions WHERE name = ?", name)))

    async def create(self, name: str, head: bytes) -> bool:
        """Keep a new session; False where the name is taken."""
        sql = "INSERT OR IGNORE INTO sessions VALUES (?, ?, ?, ?)"
        return await self._run(partial(self._changed, sql, name, head, beginning(), self.clock())) > 0

    async def claim(self, name: str, *, anew: bool = False) -> Claim:  # noqa: ARG002  # each claim is
        """Own a session."""
        return await self._run(partial(self._claim, name))

    async def release(self, name: str, epoch: int) -> None:
        """Do nothing: the file's lock keeps other gateways out."""

    async def load(self, name: str) -> StoredSession:
        """Return a session."""
        return await self._run(partial(self._load, name))

    async def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        """Keep a row."""
        await self._run(partial(self._put, name, epoch, place, row, after))

    async def take_back(self, name: str, epoch: int, place: int) -> None:
        """Forget a row."""
        await self._run(partial(self._take_back, name, epoch, place))

    async def delete(self, name: str) -> bool:
        """Forget a session."""
        return await self._run(partial(self._delete, name))

    async def count(self) -> int:
        """Return how many sessions there are."""
        return int((await self._run(partial(self._rows, "SELECT count(*) FROM sessions")))[0][0])

    async def sweep(self, idle_seconds: float, used: Collection[str] = ()) -> int:
        """Forget sessions that were idle for long."""
        return await self._run(partial(self._sweep, idle_seconds, used))

    async def aclose(self) -> None:
        """Close the file."""
        await self._run(self._db.close)
        os.close(self._owner)

    # What runs in a thread, under the lock.

    async def _run(self, done: Callable[[], T]) -> T:
        """Run in a thread. Cancelling does not stop it, so whoever cancels waits: a write is made or not."""
        return await anyio.to_thread.run_sync(self._locked, done)

    def _locked(self, done: Callable[[], T]) -> T:
        with self._lock:
            try:
                return done()
            except sqlite3.Error as error:
                with suppress(sqlite3.Error):
                    self._db.rollback()
                raise StoreError(f"the store failed: {type(error).__name__}, {error}") from error

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        return self._db.execute(sql, values).fetchall()

    def _changed(self, sql: str, *values: Any) -> int:
        return self._db.execute(sql, values).rowcount

    def _claim(self, name: str) -> Claim:
        sql = "UPDATE sessions SET epoch = epoch + 1, touched = ? WHERE name = ? RETURNING epoch"
        found = self._rows(sql, self.clock(), name)
        if not found:
            raise GoneError("there is no such session")
        return Claim(found[0][0], found[0][0] - 1)

    def _load(self, name: str) -> StoredSession:
        head = self._rows("SELECT head FROM sessions WHERE name = ?", name)
        if not head:
            raise GoneError("there is no such session")
        rows = self._rows("SELECT place, data FROM turns WHERE name = ? ORDER BY place", name)
        return StoredSession(head[0][0], dict(rows))

    def _put(self, name: str, epoch: int, place: int, row: bytes, after: int | None) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._touch(name, epoch)
            self._demand(name, after)
            self._db.execute("INSERT INTO turns VALUES (?, ?, ?)", (name, place, row))
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _demand(self, name: str, place: int | None) -> None:
        """Raise `LostError` where there is no row at a place."""
        if place is not None and not self._rows(TURN, name, place):
            raise LostError

    def _take_back(self, name: str, epoch: int, place: int) -> None:
        self._touch(name, epoch)
        self._changed("DELETE FROM turns WHERE name = ? AND place = ?", name, place)

    def _touch(self, name: str, epoch: int) -> None:
        sql = "UPDATE sessions SET touched = ? WHERE name = ? AND epoch = ?"
        if self._changed(sql, self.clock(), name, epoch):
            return
        if self._rows("SELECT 1 FROM sessions WHERE name = ?", name):
            raise FencedError("another gateway owns the session now; nothing was written")
        raise GoneError("there is no such session")

    def _delete(self, name: str) -> bool:
        self._db.execute("BEGIN IMMEDIATE")
        self._changed("DELETE FROM turns WHERE name = ?", name)
        found = self._changed("DELETE FROM sessions WHERE name = ?", name) > 0
        self._db.execute("COMMIT")
        return found

    def _sweep(self, idle_seconds: float, used: Collection[str]) -> int:
        now = self.clock()
        self._db.execute("BEGIN IMMEDIATE")
        touches = [(now, name) for name in used]
        self._db.executemany("UPDATE sessions SET touched = ? WHERE name = ?", touches)
        self._db.execute("COMMIT")
        old = self._rows("SELECT name FROM sessions WHERE touched < ?", now - idle_seconds)
        return sum(self._delete(name) for (name,) in old)


def _locked(path: Path) -> int:
    """Return the descriptor of a lock file that this process holds."""
    try:
        found = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"--store sqlite:{path.with_suffix('')}: {_why(path.parent, error)}") from error
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(found)
        raise InputError(
            f"--store sqlite:{path.with_suffix('')} belongs to another gateway that runs; stop it, name "
            "another file, or let several gateways share --store redis://"
        ) from None
    return found


def _why(folder: Path, error: OSError) -> str:
    """Return why no file can be made in a folder, and what to do about it."""
    if not folder.exists():
        return f"there is no folder {folder}; make it, or name another file"
    return f"no file can be made in {folder.absolute()} ({error.strerror}); name another file"


def _prepared(db: sqlite3.Connection, *, durable: bool) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version != VERSION and (version or tables):
        raise sqlite3.DatabaseError(f"it has version {version}, and this gateway reads {VERSION}")
    db.executescript(SCHEMA)
    db.execute(f"PRAGMA user_version = {VERSION}")
