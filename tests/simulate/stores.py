"""Stores that outlive simulated processes: SQLite's files, and a Redis, each with faults.

SQLite is the real one, on a file. A process that dies leaves its files as they are. A machine that loses its
power leaves what SQLite says that it waited for: with `synchronous = FULL` everything, with `NORMAL` the file
without its write-ahead log (https://sqlite.org/pragma.html#pragma_synchronous). Redis is `fakeredis`, which
runs the gateway's scripts in a Lua of its own, behind a client of the real library.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import fakeredis
import orjson
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.simulate.draws import Draws
from tests.simulate.faults import FaultPlan
from tests.simulate.history import History
from tests.simulate.loop import SimulatedLoop, SimulatedProcess
from tito_io.serve.redis import ANSWER_SECONDS, RedisStore
from tito_io.serve.sqlite import SqliteStore
from tito_io.serve.store import Claim, SessionSummary, Store, StoredSession, StoreError

FULL = 2
"""SQLite's number for `synchronous = FULL`."""
COMMANDS = frozenset(("PING", "SET", "GET", "HGET", "EVAL", "HGETALL", "HDEL", "HMGET", "DEL", "SCAN"))
"""What the gateway's store sends; anything else is refused, so that it is looked at first."""


class DiskError(StoreError):
    """A fault of the simulation."""


@attrs.define(eq=False)
class WatchedStore:
    """A store whose calls are noted, and fail before or after their work where the plan says so."""

    inner: Any
    history: History
    draws: Draws
    plan: FaultPlan
    gateway: str
    fails: bool
    shared: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.shared = self.inner.shared

    async def check(self) -> None:
        await self._call("check", self.inner.check)

    async def secret(self, proposed: bytes) -> bytes:
        return bytes(await self._call("secret", self.inner.secret, proposed))

    async def head(self, name: str) -> bytes | None:
        found: bytes | None = await self._call("head", self.inner.head, name)
        return found

    async def create(self, name: str, head: bytes) -> bool:
        return bool(await self._call("create", self.inner.create, name, head))

    async def claim(self, name: str, *, anew: bool = False) -> Claim:
        found: Claim = await self._call("claim", self.inner.claim, name, anew=anew)
        return found

    async def release(self, name: str, epoch: int) -> None:
        await self._call("release", self.inner.release, name, epoch)

    async def load(self, name: str) -> StoredSession:
        found: StoredSession = await self._call("load", self.inner.load, name)
        return found

    async def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        response = orjson.loads(row)["response"]
        what = f"put {place} ({response[-6:]})"
        await self._call(what, self.inner.put, name, epoch, place, row, after=after)
        self.history.stored[response] = self.history.clock()

    async def put_media(self, name: str, epoch: int, media: Mapping[str, bytes]) -> None:
        await self._call("put_media", self.inner.put_media, name, epoch, media)

    async def media(self, name: str, digests: Collection[str]) -> dict[str, bytes]:
        return dict(await self._call("media", self.inner.media, name, digests))

    async def received(self, name: str, places: Sequence[int]) -> None:
        await self._call(f"received {list(places)}", self.inner.received, name, places)

    async def take_back(self, name: str, epoch: int, place: int) -> None:
        await self._call(f"take_back {place}", self.inner.take_back, name, epoch, place)

    async def delete(self, name: str) -> bool:
        return bool(await self._call("delete", self.inner.delete, name))

    async def count(self) -> int:
        return int(await self._call("count", self.inner.count))

    async def newest(self, most: int, wanted: Callable[[bytes], bool]) -> list[SessionSummary]:
        return list(await self._call("newest", self.inner.newest, most, wanted))

    async def sweep(self, idle_seconds: float, used: Collection[str] = ()) -> int:
        return int(await self._call("sweep", self.inner.sweep, idle_seconds, used))

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def _call(self, what: str, work: Callable[..., Any], *args: Any, **named: Any) -> Any:
        fault = ""
        if self.fails and self.plan.on and self.draws.chance(self.plan.store):
            fault = self.draws.pick(("before", "after"))
        if fault == "before":
            self.history.note(self.gateway, f"store {what}: fails before its work")
            raise DiskError("the store failed: simulated")
        slow = self.plan.slow_store if self.plan.on else 0.0
        if slow:
            await asyncio.sleep(self.draws.between(0, slow))
        try:
            found = await work(*args, **named)
        except StoreError as error:
            self.history.note(self.gateway, f"store {what}: {type(error).__name__}")
            raise
        self.history.note(self.gateway, f"store {what}{': done, and fails' if fault else ''}")
        if slow:
            await asyncio.sleep(self.draws.between(0, slow))
        if fault:
            raise DiskError("the store failed: simulated")
        return found


@attrs.define(eq=False)
class SqliteDisk:
    """The disk with SQLite's file, which one gateway uses at a time.

    Attributes:
        folder: Where the files are.
        durable: Whether the gateway is told to wait for the disk.
        clock: Returns the time in seconds.
    """

    folder: Path
    durable: bool
    clock: Callable[[], float]
    _store: SqliteStore | None = attrs.field(default=None, init=False)
    _number: int = 0

    def open(self) -> Store:
        """Return the store for a new process."""
        self._store = SqliteStore.open(self._path(), durable=self.durable)
        self._store.clock = self.clock
        return self._store

    def end(self, *, power: bool) -> None:
        """End the process that has the file open, or the power of its machine."""
        store, old = self._store, self._path()
        if store is None:
            return
        waited = store.db.execute("PRAGMA synchronous").fetchone()[0] == FULL
        self._number += 1
        shutil.copy(old, self._path())
        log = old.with_name(f"{old.name}-wal")
        if log.exists() and (waited or not power):
            shutil.copy(log, self._path().with_name(f"{self._path().name}-wal"))
        store.db.close()  # the lock ends with the process; what it writes now is on the files of before
        store._owner.close()
        self._store = None

    def left(self, name: str) -> list[str]:
        """Return in which tables a session is."""
        assert self._store is not None
        tables = ("sessions", "turns", "unreceived", "media")
        return [
            one
            for one in tables
            if self._store.db.execute(f"SELECT 1 FROM {one} WHERE name = ?", [name]).fetchall()  # noqa: S608  # names of tables
        ]

    def _path(self) -> Path:
        return self.folder / f"{self._number}.db"


@attrs.define(eq=False)
class RedisServer:
    """A Redis server that several gateways reach, each over a connection that may fail.

    Attributes:
        loop: The event loop.
        draws: What decides which commands fail.
        plan: How often.
        history: Where failures are noted.
    """

    loop: SimulatedLoop
    draws: Draws
    plan: FaultPlan
    history: History
    process: SimulatedProcess = attrs.field(init=False)
    _server: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.process = self.loop.process("redis")
        self._server = fakeredis.FakeRedis(server=fakeredis.FakeServer())

    def open(self, gateway: str) -> Store:
        """Return the store of a new process."""
        return RedisStore(SimulatedRedis(self, gateway), life_seconds=86_400)

    def left(self, name: str) -> list[str]:
        """Return which keys a session has."""
        return sorted(key.decode() for key in self._server.scan_iter(match=f"*{name}*"))

    def run(self, command: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """Run a command at once."""
        if command[0] not in COMMANDS:
            raise AssertionError(f"the store sends {command[0]}, which it did not send before")
        return self._server.execute_command(*command, **options)


class SimulatedRedis(redis.asyncio.Redis):
    """The library's client over a network that takes time, and breaks."""

    def __init__(self, server: RedisServer, gateway: str) -> None:
        super().__init__()
        self.server, self.gateway = server, gateway

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command and wait for its answer."""
        server, draws = self.server, self.server.draws
        await asyncio.sleep(draws.between(0, 0.01))
        fault = ""
        if server.plan.on and draws.chance(server.plan.store):
            fault = draws.pick(("before", "after", "late"))
            server.history.note(self.gateway, f"redis {args[0]}: fails {fault} its work")
        if fault == "before":
            raise RedisConnectionError("broken")
        if fault == "late":  # it is on its way when the client gives up
            when = server.loop.time() + draws.between(0, 3 * ANSWER_SECONDS)
            server.loop.call_at(when, server.run, args, options, context=server.process.context())
            await asyncio.sleep(ANSWER_SECONDS)
            raise RedisTimeoutError("no answer in time")
        found = server.run(args, options)
        await asyncio.sleep(draws.between(0, 0.01))
        if fault == "after":
            raise RedisConnectionError("broken")
        return found
