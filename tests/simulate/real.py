"""Real gateways over real stores, with the clients and the checker of the simulation.

The gateway is a process of `tito serve`. Its engine is the embedded one behind a socket of the test, so that
what it samples is known. A proxy stands between clients and gateway, which remembers what the gateway wrote.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import Any
from unittest import mock

import anyio.to_thread
import attrs
import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.io.serve.gateway import served
from tests.io.serve.gateway_process import Process, started
from tests.simulate.agents import OK, Agent, Client, Wire, World
from tests.simulate.checker import violations
from tests.simulate.draws import Draws
from tests.simulate.engine import SAMPLING, remember_samplings
from tests.simulate.faults import FaultPlan
from tests.simulate.history import Attempt, History
from tests.simulate.network import LostError
from tests.simulate.run import read_rows, stored_turns
from tito_io.embedded import MODEL, app
from tito_io.embedded.engine import EmbeddedEngine
from tito_io.serve.store import Store, open_store

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
    """

    history: History | None = None
    target: int | None = None
    silent: bool = False
    port: int = attrs.field(default=0, init=False)
    _writers: set[asyncio.StreamWriter] = attrs.field(factory=set, init=False)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Proxy]:
        """Listen for a block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.cut()
            server.close()

    def cut(self) -> None:
        """Break all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except (OSError, TypeError):
            writer.transport.abort()
            return
        self._writers.add(back)
        seen: list[Attempt] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, back, lambda data: self._find(data, seen)))
                group.create_task(self._pass(there, writer, lambda data: _remember(data, seen)))
        finally:
            self._writers -= {writer, back}

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, see: Callable[[bytes], None]
    ) -> None:
        """Pass bytes on until one end closes; then close the other."""
        with suppress(OSError):
            while data := await reader.read(65_536):
                see(data)
                if not self.silent:
                    writer.write(data)
                    await writer.drain()
        with suppress(OSError):
            writer.transport.abort() if self.silent else writer.close()

    def _find(self, data: bytes, seen: list[Attempt]) -> None:
        """Note which attempt a connection carries; each has one."""
        if self.history is not None and not seen and HEADER in data:
            number = int(data.split(HEADER)[1].split(b"\r\n")[0])
            seen.append(self.history.attempts[number - 1])
            seen[0].began = self.history.clock()


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


@attrs.define(eq=False)
class RealWorld(World):
    """Agents, a gateway as a process, and what is between them.

    Attributes:
        options: The options of `tito serve`, without the engine's.
        before: Code that runs in the process before the gateway.
        environment: More variables for the process.
        engine: The proxy in front of the engine.
        gateway: The proxy in front of the gateway.
        up: Whether a gateway listens.
    """

    options: Sequence[str]
    before: str
    environment: Mapping[str, str]
    engine: Proxy
    gateway: Proxy
    stack: AsyncExitStack
    up: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    process: Process = attrs.field(init=False)
    _group: set[asyncio.Task[Any]] = attrs.field(factory=set, init=False)

    def spawn(self, client: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of a client."""
        task = asyncio.create_task(work, name=client)
        self._group.add(task)
        return task

    async def connect(self, client: str, attempt: Attempt | None) -> Wire:
        """Connect to the gateway, once it listens."""
        del client, attempt
        await self.up.wait()
        try:
            return RealWire(*await asyncio.open_connection("127.0.0.1", self.gateway.port))
        except OSError:
            raise LostError from None

    async def start(self) -> None:
        """Start a gateway, and note what its store has."""
        base = ("--engine", "vllm", "--base-url", f"http://127.0.0.1:{self.engine.port}", "--model", MODEL)
        begun = started(*self.options, *base, first=self.before, environment=self.environment)
        self.process = await anyio.to_thread.run_sync(self.stack.enter_context, begun)
        self.gateway.target = int(self.process.url.rsplit(":", 1)[1])
        self.up.set()

    def kill(self) -> None:
        """End the gateway at once."""
        self.up.clear()
        self.process.kill()
        self.history.note("gateway", "is killed")
        for attempt in self.history.attempts:
            attempt.finished = attempt.finished or self.now()

    async def killed(self) -> None:
        """End the gateway, and start it again; what it has stored by then is noted."""
        self.kill()
        await self.start()
        client = Client(self, "collector")
        for session in list(self.history.sessions.values()):
            answer = await client.ask("GET", f"/sessions/{session.name}")
            if answer is not None and answer.complete and answer.status == OK:
                for node in orjson.loads(answer.data)["metadata"]["tree"]["nodes"]:
                    self.history.stored.setdefault(node["response_id"], self.now())

    async def settle(self) -> None:
        """End all faults of clients, and wait for what they have sent twice."""
        self.plan.on = False
        for task in list(self._group):
            with suppress(Exception):
                await task


@asynccontextmanager
async def real_world(
    *options: str, before: str = "", environment: Mapping[str, str] | None = None
) -> AsyncIterator[RealWorld]:
    """Start an engine, its proxy, a gateway, and its proxy."""
    history = History(time.monotonic, time.monotonic())
    seed = SystemRandom().randrange(2**32)
    plan = FaultPlan(client=0.2, keyed=0.5, store=1.0)  # its own faults are the clients' alone
    with mock.patch.object(EmbeddedEngine, "run", remember_samplings(history)):
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(served(Seeded(app(), history)))
            engine = await stack.enter_async_context(Proxy(target=int(url.rsplit(":", 1)[1])).listening())
            gateway = await stack.enter_async_context(Proxy(history).listening())
            made = RealWorld(
                Draws(seed), plan, history, options, before, environment or {}, engine, gateway, stack
            )
            history.note("seed", f"clients follow seed {seed}")
            await made.start()
            yield made


async def storm(world: RealWorld, blows: Sequence[Blow], *, agents: int = 4, turns: int = 6) -> None:
    """Let agents live while one blow after the other is struck, and then take one more turn each."""
    living = [Agent(world, f"agent-{one}", number=one, turns=turns) for one in range(1, agents + 1)]
    lives = [world.spawn(agent.name, agent.live()) for agent in living]
    async with asyncio.timeout(PATIENCE_SECONDS):
        for blow in blows:
            await asyncio.sleep(world.draws.between(0.1, 1.5))
            await blow(world)
        await asyncio.gather(*lives)
        await world.settle()
        for agent in living:
            session = agent.session
            if session is not None and session.deleting is None and await agent.turn(agent.body()) is None:
                world.history.odd.append(f"{agent.label}: its session does not go on")


async def judged(world: RealWorld, address: str, left: Callable[[str], Awaitable[list[str]]]) -> list[str]:
    """Read rows by the API and from the store, and return what contradicts the documentation."""
    client = Client(world, "collector")
    sessions = list(world.history.sessions.values())
    for session in sessions:
        await read_rows(client, session)
    await anyio.to_thread.run_sync(world.process.stop)
    store: Store = open_store(address, idle_seconds=86_400, durable=False)
    for session in sessions:
        session.turns += await stored_turns(store, session.name)
        session.left = await left(session.name)
    await store.aclose()
    return violations(world.history)


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
