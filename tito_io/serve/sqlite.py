"""A store in one SQLite file: what it acknowledged survives the process, even if that is killed.

It uses SQLite's write-ahead log and one connection. A row survives the process as soon as the operating
system has it; `durable` waits for the disk too, so that the row survives a power cut. One gateway owns the
file.

What may wait for the disk, or read much, runs in a thread. A session is opened, and a row is written, without
one, unless it is `durable` or the connection is in use: a thread takes longer than the write, which only
copies into the system's memory. When many sessions begin at once, each would wait for threads for seconds.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import anyio
import anyio.to_thread
import attrs

from tito_core import InputError

from .store import (
    Claim,
    FencedError,
    GoneError,
    LostError,
    SessionSummary,
    StoredSession,
    StoreError,
    first_epoch,
)

T = TypeVar("T")
P = ParamSpec("P")
VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
  name TEXT PRIMARY KEY, head BLOB NOT NULL, epoch INTEGER NOT NULL, touched REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turns (
  name TEXT NOT NULL, place INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (name, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unreceived (
  name TEXT NOT NULL, place INTEGER NOT NULL, PRIMARY KEY (name, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS media (
  name TEXT NOT NULL, digest TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (name, digest)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS secrets (id INTEGER PRIMARY KEY CHECK (id = 0), value BLOB NOT NULL);
"""
TURN = "SELECT 1 FROM turns WHERE name = ? AND place = ?"
NEWEST = "SELECT name, head, touched FROM sessions ORDER BY touched DESC, name"
TURNS = "SELECT count(*) FROM turns WHERE name = ?"
RECEIVED = "DELETE FROM unreceived WHERE name = ? AND place = ?"


UNSAVED = 4 << 20
"""How many bytes of rows the log may hold before it is copied into the file, which waits for the disk."""
BUSY_MILLISECONDS = 5_000
"""How long a thread waits while another program writes to the file."""


def _in_thread(
    work: Callable[Concatenate[SqliteStore, P], T],
) -> Callable[Concatenate[SqliteStore, P], Coroutine[Any, Any, T]]:
    """Run a method in a thread, under the lock; raises `StoreError`.

    A cancelled caller waits for the end: whether a write took place must be known.
    """

    @wraps(work)
    async def run(self: SqliteStore, /, *args: P.args, **named: P.kwargs) -> T:
        return await anyio.to_thread.run_sync(partial(_locked, self, work, *args, **named))

    return run


def _at_once(
    work: Callable[Concatenate[SqliteStore, P], T],
) -> Callable[Concatenate[SqliteStore, P], Coroutine[Any, Any, T]]:
    """Run a method without a thread, where that waits for nothing; raises `StoreError`."""
    in_thread = _in_thread(work)

    @wraps(work)
    async def run(self: SqliteStore, /, *args: P.args, **named: P.kwargs) -> T:
        if self.durable or self._unsaved > UNSAVED or not self._lock.acquire(blocking=False):
            return await in_thread(self, *args, **named)
        try:
            with _failures():
                self.db.execute("PRAGMA busy_timeout = 0")
                return work(self, *args, **named)
        except BusyFileError:
            pass
        finally:
            self._lock.release()
        return await in_thread(self, *args, **named)

    return run


def _locked(
    self: SqliteStore, work: Callable[Concatenate[SqliteStore, P], T], *args: P.args, **named: P.kwargs
) -> T:
    """Run a method, alone; wait for other programs that use the file."""
    with self._lock, _failures():
        self.db.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        if self._unsaved > UNSAVED:
            self._save()
        return work(self, *args, **named)


class BusyFileError(StoreError):
    """Another program writes to the file; nothing was written."""


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        busy = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
        kind = BusyFileError if busy else StoreError
        raise kind(f"the store failed: {type(error).__name__}, {error}") from error


@attrs.define(eq=False)
class SqliteStore:
    """Sessions in a file; opened by `SqliteStore.open`.

    Attributes:
        path: The file.
        db: The connection, which one thread uses at a time.
        durable: Whether each write waits for the disk.
        clock: Returns the time in seconds; for `sweep`.
    """

    path: Path
    db: sqlite3.Connection
    _owner: sqlite3.Connection
    """Holds the lock on the file beside it until the process ends."""
    durable: bool = False
    shared: bool = attrs.field(default=False, init=False)
    clock: Callable[[], float] = time.time
    _lock: Lock = attrs.field(factory=Lock, init=False)
    """Allows one statement at a time: the threads share the connection."""
    _unsaved: int = attrs.field(default=0, init=False)
    """Bytes of rows that were written since the log was copied into the file."""

    @classmethod
    def open(cls, path: str | Path, *, durable: bool = False) -> Self:
        """Open the file; create it where it is missing.

        Raises `InputError` where another gateway has it open, where it is another program's, where it has
        hard links, or where its folder is missing: a misspelt folder must not begin an empty store.
        """
        file = _real_file(path)
        owner = _lock_file(file.with_name(f"{file.name}.lock"))
        try:
            _create(file)
            db = connected(file, durable=durable)
        except (sqlite3.Error, OSError) as error:
            owner.close()
            raise InputError(f"--store sqlite:{file}: {error}; name another file") from error
        return cls(file, db, owner, durable=durable)

    @_in_thread
    def check(self) -> None:
        """Read from the file."""
        self._rows("SELECT 1 FROM sessions LIMIT 1")

    @_in_thread
    def secret(self, proposed: bytes) -> bytes:
        """Return the secret."""
        self._changed("INSERT OR IGNORE INTO secrets VALUES (0, ?)", proposed)
        return bytes(self._rows("SELECT value FROM secrets")[0][0])

    @_at_once
    def head(self, name: str) -> bytes | None:
        """Return a session's head."""
        return self._head(name)

    @_at_once
    def create(self, name: str, head: bytes) -> bool:
        """Add a new session; False where the name is taken."""
        sql = "INSERT OR IGNORE INTO sessions VALUES (?, ?, ?, ?)"
        return self._changed(sql, name, head, first_epoch(), self.clock()) > 0

    @_at_once
    def claim(self, name: str, *, anew: bool = False) -> Claim:  # noqa: ARG002  # each claim is
        """Own a session."""
        sql = "UPDATE sessions SET epoch = epoch + 1, touched = ? WHERE name = ? RETURNING epoch"
        epochs = self._rows(sql, self.clock(), name)
        if not epochs:
            raise GoneError
        return Claim(epochs[0][0], epochs[0][0] - 1)

    async def release(self, name: str, epoch: int) -> None:
        """Do nothing: the file's lock keeps other gateways out."""

    async def load(self, name: str) -> StoredSession:
        """Return a session."""
        return await (self._read_turns if await self._has_turns(name) else self._read)(name)

    @_at_once
    def _has_turns(self, name: str) -> bool:
        return bool(self._rows("SELECT 1 FROM turns WHERE name = ? LIMIT 1", name))

    def _session(self, name: str) -> StoredSession:
        head = self._head(name)
        if head is None:
            raise GoneError
        rows = self._rows("SELECT place, data FROM turns WHERE name = ? ORDER BY place", name)
        unreceived = self._rows("SELECT place FROM unreceived WHERE name = ?", name)
        sizes = self._rows("SELECT digest, length(data) FROM media WHERE name = ?", name)
        return StoredSession(head, dict(rows), frozenset(place for (place,) in unreceived), dict(sizes))

    _read, _read_turns = _at_once(_session), _in_thread(_session)

    @_at_once
    def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        """Add a row."""
        with self._transaction():
            self._touch(name, epoch)
            if after is not None and not self._rows(TURN, name, after):
                raise LostError
            self._changed("INSERT INTO turns VALUES (?, ?, ?)", name, place, row)
            self._changed("INSERT OR IGNORE INTO unreceived VALUES (?, ?)", name, place)
        self._unsaved += len(row)

    @_in_thread
    def put_media(self, name: str, epoch: int, media: Mapping[str, bytes]) -> None:
        """Add media."""
        with self._transaction():
            self._touch(name, epoch)
            rows = [(name, digest, data) for digest, data in media.items()]
            self.db.executemany("INSERT OR IGNORE INTO media VALUES (?, ?, ?)", rows)
        self._unsaved += sum(map(len, media.values()))

    @_in_thread
    def media(self, name: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return media."""
        if self._head(name) is None:
            raise GoneError
        one = "SELECT digest, data FROM media WHERE name = ? AND digest = ?"
        return dict(row for digest in digests for row in self._rows(one, name, digest))

    @_at_once
    def received(self, name: str, places: Sequence[int]) -> None:
        """Note that a client has rows."""
        self.db.executemany(RECEIVED, [(name, place) for place in places])

    @_at_once
    def take_back(self, name: str, epoch: int, place: int) -> None:
        """Delete a row."""
        with self._transaction():
            self._touch(name, epoch)
            self._changed("DELETE FROM turns WHERE name = ? AND place = ?", name, place)
            self._changed(RECEIVED, name, place)

    @_in_thread
    def delete(self, name: str) -> bool:
        """Delete a session."""
        with self._transaction():
            self._changed("DELETE FROM turns WHERE name = ?", name)
            self._changed("DELETE FROM unreceived WHERE name = ?", name)
            self._changed("DELETE FROM media WHERE name = ?", name)
            return self._changed("DELETE FROM sessions WHERE name = ?", name) > 0

    @_in_thread
    def count(self) -> int:
        """Return the number of sessions."""
        return int(self._rows("SELECT count(*) FROM sessions")[0][0])

    @_in_thread
    def newest(self, most: int, wanted: Callable[[bytes], bool]) -> list[SessionSummary]:
        """Return the sessions that were used last."""
        now = self.clock()
        with closing(self.db.execute(NEWEST)) as rows:
            found = list(islice((row for row in rows if wanted(row[1])), most))
        return [
            SessionSummary(name, head, max(now - touched, 0.0), self._rows(TURNS, name)[0][0])
            for name, head, touched in found
        ]

    @_in_thread
    def sweep(self, idle_seconds: float, used: Collection[str] = ()) -> int:
        """Delete sessions that were idle for long."""
        now = self.clock()
        rows = "DELETE FROM {} WHERE name IN (SELECT name FROM sessions WHERE touched < ?)"
        with self._transaction():
            touches = [(now, name) for name in used]
            self.db.executemany("UPDATE sessions SET touched = ? WHERE name = ?", touches)
            for table in ("turns", "unreceived", "media"):
                self._changed(rows.format(table), now - idle_seconds)
            gone = self._changed("DELETE FROM sessions WHERE touched < ?", now - idle_seconds)
        self._save()
        return gone

    @_in_thread
    def aclose(self) -> None:
        """Close the file."""
        self.db.close()
        self._owner.close()

    def _save(self) -> None:
        """Copy the log into the file, as far as no other program reads what it would replace."""
        self.db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._unsaved = 0

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        return self.db.execute(sql, values).fetchall()

    def _head(self, name: str) -> bytes | None:
        found = self._rows("SELECT head FROM sessions WHERE name = ?", name)
        return bytes(found[0][0]) if found else None

    def _changed(self, sql: str, *values: Any) -> int:
        return self.db.execute(sql, values).rowcount

    def _touch(self, name: str, epoch: int) -> None:
        sql = "UPDATE sessions SET touched = ? WHERE name = ? AND epoch = ?"
        if self._changed(sql, self.clock(), name, epoch):
            return
        if self._rows("SELECT 1 FROM sessions WHERE name = ?", name):
            raise FencedError
        raise GoneError

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.db:  # it commits, or rolls back
            self.db.execute("BEGIN IMMEDIATE")
            yield


def _real_file(path: str | Path) -> Path:
    """Return the file that a path means, whatever symbolic links lead to it: it has one lock and one log."""
    file = Path(os.path.realpath(path))
    if file.is_dir():
        raise InputError(f"--store sqlite:{path}: this is a folder; name a file in it")
    if file.exists() and file.stat().st_nlink > 1:
        raise InputError(
            f"--store sqlite:{path}: the file has several names (hard links), and SQLite keeps a log for "
            "each of them; delete the other names, or copy the file"
        )
    return file


def _create(path: Path) -> None:
    """Create a file that only its user can read; conversations are private. One that exists stays as it is.

    It must not be opened here again: closing it would end the locks that this process has on it (POSIX).
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _lock_file(path: Path) -> sqlite3.Connection:
    """Return a connection with an exclusive lock on an empty database beside the store.

    The lock is SQLite's own, which every operating system ends with the process. It is on a file of its own
    so that other programs can read the store meanwhile.
    """
    store = path.with_suffix("")
    try:
        _create(path)
        owner = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        why = f"no file can be made in {path.parent.absolute()} ({reason}); name another file"
        if not path.parent.exists():
            why = f"there is no folder {path.parent}; make it, or name another file"
        raise InputError(f"--store sqlite:{store}: {why}") from error
    try:
        owner.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        owner.close()
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise InputError(f"--store sqlite:{store}: {path}: {error}; delete that file") from error
        raise InputError(
            f"--store sqlite:{store} belongs to another gateway that runs; stop it, name "
            "another file, or let several gateways share --store redis://"
        ) from None
    return owner


def connected(path: str | Path, *, durable: bool = False) -> sqlite3.Connection:
    """Return a connection to a database of this version; raises `sqlite3.Error` for another one."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    db.execute("PRAGMA wal_autocheckpoint = 0")  # `_save` does it, in a thread
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version != VERSION and (version or tables):
        raise sqlite3.DatabaseError(f"it has version {version}, and this gateway reads {VERSION}")
    db.executescript(SCHEMA)
    db.execute(f"PRAGMA user_version = {VERSION}")
    return db
