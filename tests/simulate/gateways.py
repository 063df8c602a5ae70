"""Gateways as simulated processes: they start, die, stand still, and start again on the same store."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import anyio
import attrs
import httpx2
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.simulate.draws import Draws
from tests.simulate.engine import TIMEOUT_SECONDS, EngineNetwork, embedded
from tests.simulate.faults import FaultPlan
from tests.simulate.history import Attempt, History
from tests.simulate.loop import SimulatedLoop, SimulatedProcess
from tests.simulate.network import Connection
from tests.simulate.stores import RedisServer, SqliteDisk, WatchedStore
from tito_core.seams.profile import Profile
from tito_io.client.certificates import Certificates, KnownRendering
from tito_io.client.token_client import TokenClient
from tito_io.embedded import MODEL, family
from tito_io.engines.protocol import Rendering
from tito_io.engines.vllm import VLLM
from tito_io.serve.app import app
from tito_io.serve.gateway import Gateway, GatewayOptions, build_gateway
from tito_io.serve.origins import OriginCheck, TrustedNames

ATTEMPT = b"x-attempt"
"""Names an attempt to the simulation; the gateway does not know the header."""


@cache
def known_template() -> Profile:
    """Return what a long conversation learns of the template, so that simulations need not learn it again."""
    known = KnownRendering()

    async def begun(_: object) -> KnownRendering:
        return known

    engine = VLLM("http://engine", transport=httpx2.ASGITransport(embedded(1)))
    plain = TokenClient(engine, certificates=Certificates(begin=begun))

    async def talk() -> None:
        for words, most in ((3, 40), (2, 2)):  # whole turns, and turns that are cut
            steps: list[Any] = []
            prompt: list[Any] = [{"role": "user", "content": "Hello."}]
            for _ in range(words):
                turn = await plain.turn(steps, prompt, sampling={"max_tokens": most})
                steps.append(turn.step)
                prompt += [turn.message, {"role": "user", "content": "Go on."}]

    anyio.run(talk)
    assert known.profile is not None
    return known.profile


@attrs.define(eq=False)
class SimulatedGateway:
    """A gateway that is started again whenever it dies.

    Attributes:
        name: Its name in timelines.
        loop: The event loop.
        draws: What decides.
        plan: Which faults happen.
        history: Where everything is noted.
        storage: Where it keeps sessions.
        cold: Whether it knows nothing of the template at first.
        local: Whether it renders with the model's folder.
        ready: Whether it listens.
        gateway: The gateway that runs now.
        process: The process that runs now.
    """

    name: str
    loop: SimulatedLoop
    draws: Draws
    plan: FaultPlan
    history: History
    storage: SqliteDisk | RedisServer
    cold: bool
    local: bool
    ready: bool = attrs.field(default=False, init=False)
    gateway: Gateway = attrs.field(init=False)
    process: SimulatedProcess = attrs.field(init=False)
    _config: Config = attrs.field(init=False)
    _state: ServerState = attrs.field(init=False)
    _connections: list[Connection] = attrs.field(factory=list, init=False)
    _attempts: list[Attempt] = attrs.field(factory=list, init=False)
    _starts: int = 0

    def start(self) -> None:
        """Start a process."""
        self._starts += 1
        self.process = self.loop.process(self.name)
        self.process.died = self._died
        self.loop.spawn(self.process, self._run())

    def connect(self, connection: Connection) -> None:
        """Accept a connection."""
        self._connections.append(connection)
        connection.open(self._config, self._state)

    async def _run(self) -> None:
        self.gateway = self._built()
        inner = app(self.gateway)
        watched = WatchedApp(OriginCheck(inner, self.gateway, TrustedNames.of("127.0.0.1", ())), self)
        self._config = Config(watched, http="h11", ws="none", log_config=None, lifespan="off")
        self._config.load()
        self._state = ServerState()
        async with inner.router.lifespan_context(inner):
            self.ready = True
            self.history.note(self.name, f"listens, start {self._starts}")
            await asyncio.Event().wait()

    def _built(self) -> Gateway:
        fails = isinstance(self.storage, SqliteDisk)  # a Redis fails by its commands
        inner = self.storage.open() if isinstance(self.storage, SqliteDisk) else self.storage.open(self.name)
        store: Any = WatchedStore(inner, self.history, self.draws, self.plan, self.name, fails)
        network = EngineNetwork(self.history, self.draws, self.plan, self.name)
        engine = VLLM("http://engine", transport=network, timeout=TIMEOUT_SECONDS)
        options = GatewayOptions(ping_seconds=0.5)
        here = family() if self.local else None
        built = build_gateway(engine, store, model=MODEL, family=here, options=options, clock=self.loop.time)
        built.turns.certificates = Certificates(begin=None if self.cold else _known)
        return built

    def _died(self) -> None:
        power = self.plan.power and self.draws.chance(0.5)
        self.history.note(self.name, "loses its power" if power else "is killed")
        self.ready = False
        for attempt in self._attempts:
            attempt.finished = self.loop.time()
        self._attempts.clear()
        for connection in self._connections:
            connection.died()
        self._connections.clear()
        if isinstance(self.storage, SqliteDisk):
            self.storage.end(power=power)
        again = self.loop.outside.context()
        self.loop.call_later(self.draws.between(0.05, 3), self.start, context=again)


async def _known(rendering: Rendering) -> KnownRendering:
    """Return the template's profile for conversations without tools; nothing is known of others."""
    if rendering.key != Rendering().key:
        return KnownRendering()
    return KnownRendering(attrs.evolve(known_template(), key=rendering.key))


@attrs.frozen
class WatchedApp:
    """Notes when the gateway begins with a request, and when it has done with it."""

    app: ASGIApp
    owner: SimulatedGateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        history, owner = self.owner.history, self.owner
        number = dict(scope.get("headers", ())).get(ATTEMPT)
        attempt = None if number is None else history.attempts[int(number) - 1]
        if attempt is None:
            await self.app(scope, receive, send)
            return
        attempt.began = history.clock()
        owner._attempts.append(attempt)
        history.note(owner.name, f"begins attempt {attempt.number}")
        try:
            await self.app(scope, receive, send)
        finally:
            attempt.finished = history.clock()
            if attempt in owner._attempts:
                owner._attempts.remove(attempt)
            history.note(owner.name, f"has done with attempt {attempt.number}")
