"""Real gateways over real stores, with the clients and the checker of the simulation.

The gateway is a process of `tito serve`. Its engine is the embedded one behind a socket of the test, so that
what it samples is known. A proxy stands between clients and gateway, which remembers what the gateway wrote.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from random import SystemRandom
from tempfile import NamedTemporaryFile
from typing import Any
from unittest import mock

import attrs
import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.io.serve.gateway import served
from tests.io.serve.gateway_process import Process, started
from tests.simulate.agents import OK, Agent, Client, Wire, World
from tests.simulate.checker import Ids
from tests.simulate.draws import Draws, T
from tests.simulate.engine import SAMPLING, remember_samplings
from tests.simulate.faults import FaultPlan
from tests.simulate.history import Attempt, History, SessionHistory
from tests.simulate.network import LostError
from tests.simulate.run import read_rows, stored_turns
from tito_io.embedded import MODEL, app
from tito_io.embedded.engine import EmbeddedEngine
from tito_io.samples.read import StoredConversation, conversations
from tito_io.serve.redis import RedisStore
from tito_io.serve.store import Store
from tito_io.serve.stores import open_store

PATIENCE_SECONDS = 300.0
"""How long agents may take, on a machine that has much else to do."""
HEADER = b"x-attempt: "
Blow = Callable[["RealWorld"], Awaitable[None]]


@attrs.define(eq=False)
class Proxy:
    """A TCP proxy that can be silent, as a network that drops everything, and remembers what a server wrote.

    Attributes:
        history: Where attempts are, for what the server writes; None to remember nothing.
        target: The port of the server; None while there is none.
        silent: Whether nothing is passed on.
        port: Where the proxy listens.
        carried: The attempts that it carried.
    """

    history: History | None = None
    target: int | None = None
    silent: bool = False
    port: int = attrs.field(default=0, init=False)
    carried: list[Attempt] = attrs.field(factory=list, init=False)
    _writers: set[asyncio.StreamWriter] = attrs.field(factory=set, init=False)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Proxy]:
        """Listen for a block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            while self._writers:  # each handler removes its own
                self.cut()
                await asyncio.sleep(0.01)

    def cut(self) -> None:
        """Break all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = {writer}
        self._writers |= own
        seen: list[Attempt] = []
        head = bytearray()
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            own.add(back)
            self._writers |= own
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, back, lambda data: self._find(data, head, seen)))
                group.create_task(self._pass(there, writer, lambda data: _remember(data, seen)))
        except (OSError, TypeError):  # no server listens there
            pass
        finally:
            for one in own:
                one.transport.abort()
            self._writers -= own

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, see: Callable[[bytes], None]
    ) -> None:
        """Pass bytes on until one end closes; then tell the other, and take what it has written by then."""
        with suppress(OSError):
            while data := await reader.read(65_536):
                see(data)
                with suppress(OSError):
                    if not self.silent:
                        writer.write(data)
                        await writer.drain()
        with suppress(OSError):
            writer.transport.abort() if self.silent else writer.write_eof()

    def _find(self, data: bytes, head: bytearray, seen: list[Attempt]) -> None:
        """Note which attempt a connection carries, once the head of its request is whole; each has one."""
        head += data
        if self.history is not None and not seen and b"\r\n\r\n" in head and HEADER in head:
            number = int(head.split(HEADER)[1].split(b"\r\n")[0])
            seen.append(self.history.attempts[number - 1])
            seen[0].began = self.history.clock()
            self.carried += seen


def _remember(data: bytes, seen: list[Attempt]) -> None:
    for attempt in seen:
        attempt.written += data


@attrs.frozen
class RealWire(Wire):
    """A client's connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def read(self) -> bytes:
        """Return the next bytes; nothing at the end. Raises `LostError` where the connection broke."""
        try:
            return await self.reader.read(65_536)
        except OSError:
            raise LostError from None

    def abandon(self) -> None:
        """Break the connection."""
        self.writer.transport.abort()


@attrs.frozen
class Seeded:
    """The engine's application; each request gets a seed of its own, so that no two samplings are equal."""

    app: ASGIApp
    history: History

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["path"] not in SAMPLING:
            await self.app(scope, receive, send)
            return
        data, more = b"", True
        while more:
            part = await receive()
            data, more = data + part.get("body", b""), part.get("more_body", False)
        body = orjson.dumps({**orjson.loads(data), "seed": len(self.history.samplings)})
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def once() -> Message:
            return whole.pop() if whole else await receive()

        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        await self.app({**scope, "headers": headers}, once, send)


async def in_thread(work: Callable[[], T]) -> T:
    """Run something in a thread; wait for its end even if cancelled, so that no process is started later."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


@attrs.define(eq=False)
class RealGateway:
    """A gateway as a process, which is killed and begun again.

    Attributes:
        options: The options of `tito serve`.
        before: Code that runs in the process before the gateway.
        environment: More variables for the process.
        proxy: The proxy in front of it.
        stack: Ends the process with the world.
        up: Whether it listens, as far as clients know.
        process: The process, once it was started.
    """

    options: Sequence[str]
    before: str
    environment: Mapping[str, str]
    proxy: Proxy
    stack: AsyncExitStack
    up: bool = attrs.field(default=False, init=False)
    process: Process = attrs.field(init=False)

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        begun = started(*self.options, first=self.before, environment=self.environment)
        self.process = await in_thread(partial(self.stack.enter_context, begun))
        self.proxy.target = int(self.process.url.rsplit(":", 1)[1])
        self.up = True


@attrs.define(eq=False)
class RealWorld(World):
    """Agents, gateways as processes, and what is between them.

    Attributes:
        engine: The proxy in front of the engine.
        gateways: The gateways.
    """

    engine: Proxy
    gateways: Sequence[RealGateway]
    _group: set[asyncio.Task[Any]] = attrs.field(factory=set, init=False)

    def spawn(self, client: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of a client."""
        task = asyncio.create_task(work, name=client)
        self._group.add(task)
        return task

    async def connect(self, client: str, attempt: Attempt | None) -> Wire:
        """Connect to one of the gateways that listen; wait for one."""
        del client, attempt
        while not any(one.up for one in self.gateways):  # noqa: ASYNC110  # as clients do that know no better
            await asyncio.sleep(0.02)
        gateway = self.draws.pick([one for one in self.gateways if one.up])
        try:
            return RealWire(*await asyncio.open_connection("127.0.0.1", gateway.proxy.port))
        except OSError:
            raise LostError from None

    async def start(self, place: int = 0) -> None:
        """Start a gateway."""
        await self.gateways[place].start()

    def kill(self, place: int = 0) -> list[Attempt]:
        """End a gateway at once; return the attempts that ended with it."""
        gateway, now = self.gateways[place], self.now()
        gateway.up = False
        gateway.process.kill()
        self.history.note(f"gateway-{place + 1}", "is killed")
        ended = [one for one in gateway.proxy.carried if one.finished is None]
        for attempt in ended:
            attempt.finished = now
        return ended

    async def killed(self, place: int = 0) -> None:
        """End a gateway, and start it again; what it had stored by then is noted."""
        ended = self.kill(place)
        await self.start(place)
        unanswered = [one for one in ended if one.answer is None or not one.answer.taken]
        died = {one.session: one.finished or 0.0 for one in unanswered}
        await asyncio.gather(*(self._note_stored(name, at) for name, at in died.items()))

    async def _note_stored(self, name: str, at: float) -> None:
        """Note which turns of a session were stored at a time, as far as a gateway knows them now."""
        answer = await Client(self, "collector").ask("GET", f"/sessions/{name}")
        if answer is not None and answer.complete and answer.status == OK:
            for node in orjson.loads(answer.data)["metadata"]["tree"]["nodes"]:
                self.history.stored.setdefault(node["response_id"], at)

    async def settle(self) -> None:
        """End all faults of clients, and wait for what they have sent twice."""
        self.plan.on = False
        for task in list(self._group):
            with suppress(Exception):
                await task


@asynccontextmanager
async def real_world(
    *options: str,
    before: str = "",
    environment: Mapping[str, str] | None = None,
    gateways: int = 1,
    seed: int | None = None,
) -> AsyncIterator[RealWorld]:
    """Start an engine, its proxy, gateways, and a proxy for each; clients follow a seed, by default any."""
    history = History(time.monotonic, time.monotonic())
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    plan = FaultPlan(client=0.2, keyed=0.5, store=1.0)  # its own faults are the clients' alone
    with mock.patch.object(EmbeddedEngine, "run", remember_samplings(history)):
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(served(Seeded(app(), history)))
            engine = await stack.enter_async_context(Proxy(target=int(url.rsplit(":", 1)[1])).listening())
            base = ("--engine", "vllm", "--base-url", f"http://127.0.0.1:{engine.port}", "--model", MODEL)
            proxies = [await stack.enter_async_context(Proxy(history).listening()) for _ in range(gateways)]
            group = [
                RealGateway((*options, *base), before, environment or {}, proxy, stack) for proxy in proxies
            ]
            history.note("seed", f"clients follow seed {seed}")
            await asyncio.gather(*(one.start() for one in group))
            yield RealWorld(Draws(seed), plan, history, engine, group)


async def storm(world: RealWorld, blows: Sequence[Blow], *, agents: int = 4, turns: int = 6) -> None:
    """Let agents live while one blow after the other is struck, and then take one more turn each."""
    living = [Agent(world, f"agent-{one}", number=one, turns=turns) for one in range(1, agents + 1)]
    lives = [world.spawn(agent.name, agent.live()) for agent in living]
    async with asyncio.timeout(PATIENCE_SECONDS):
        for blow in blows:
            await asyncio.sleep(world.draws.between(0.1, 1.5))
            await blow(world)
        await asyncio.gather(*lives)
        await go_on(world, living)


async def go_on(world: RealWorld, agents: Sequence[Agent]) -> None:
    """Demand that sessions go on once nothing fails any more."""
    await world.settle()
    for agent in agents:
        session = agent.session
        if session is not None and session.deleting is None and await agent.turn(agent.body()) is None:
            world.history.odd.append(f"{agent.label}: its session does not go on")


async def collect(world: RealWorld, address: str) -> None:
    """Read rows and calls by the API, stop the gateways, and read what the store has."""
    client = Client(world, "collector")
    sessions = list(world.history.sessions.values())
    for session in sessions:
        await read_rows(client, session)
        await _read_calls(client, session)
    for gateway in world.gateways:
        await in_thread(gateway.process.stop)
    store: Store = open_store(address, idle_seconds=86_400, durable=False)
    for session in sessions:
        session.turns += await stored_turns(store, session.name)
        session.left = await (in_sqlite if address.startswith("sqlite:") else in_redis)(address, session.name)
    await store.aclose()


async def _read_calls(client: Client, session: SessionHistory) -> None:
    """Read a session's calls, as `tito samples` does."""
    answer = await client.ask("GET", f"/sessions/{session.name}/calls")
    if answer is not None and answer.complete and answer.status == OK:
        session.calls = _shown_calls(answer.data) if answer.data else {}


def _shown_calls(data: bytes) -> dict[str, Ids]:
    with NamedTemporaryFile(suffix=".jsonl") as file:
        Path(file.name).write_bytes(data)
        (stored,) = conversations(Path(file.name))
        assert isinstance(stored, StoredConversation), stored
        steps = {node.name: node.call.step for node in stored.forest.nodes}
        return {
            name: (tuple(step.prompt_ids.tolist()), tuple(step.completion_ids.tolist()))
            for name, step in steps.items()
        }


async def in_sqlite(address: str, name: str) -> list[str]:
    """Return in which tables a session is."""
    tables = ("sessions", "turns", "unreceived", "media")
    with closing(sqlite3.connect(address.partition(":")[2])) as db:
        sql = "SELECT 1 FROM {} WHERE name = ?"
        return [one for one in tables if db.execute(sql.format(one), (name,)).fetchone()]


async def in_redis(address: str, name: str) -> list[str]:
    """Return which keys a session has."""
    client = RedisStore.to(address).client
    found = sorted([key.decode() async for key in client.scan_iter(match=f"*{name}*")])
    await client.aclose()
    return found


@attrs.frozen
class FaultyDisk:
    """The library that makes a disk fail, for files in a folder.

    Attributes:
        library: The compiled library.
        folder: Where the files are.
    """

    library: Path
    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of a process whose disk fails."""
        return {"LD_PRELOAD": str(self.library), "DISK_FAULTS": str(self.folder)}

    @property
    def address(self) -> str:
        """The store."""
        return f"sqlite:{self.folder / 'sessions.db'}"

    def become(self, mode: str) -> None:
        """Make the disk `full`, `readonly`, `slow MILLISECONDS`, or well again with nothing."""
        new = self.folder.with_name(f"{self.folder.name}.new")
        new.write_text(mode)
        new.replace(self.folder.with_name(f"{self.folder.name}.mode"))

    def lose_power(self) -> None:
        """Leave of SQLite's files what was waited for."""
        synced = self.folder.with_name(f"{self.folder.name}.synced")
        for file in self.folder.glob("sessions.db*"):
            kept = synced / file.name
            if kept.exists():
                file.write_bytes(kept.read_bytes())
            elif not file.name.endswith("-owner"):
                file.unlink()
