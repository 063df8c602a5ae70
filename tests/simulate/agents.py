"""Clients: agents that take turns, repeat what failed, give up, send things twice, and read slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

import attrs
import h11
import orjson

from tests.simulate.draws import Draws
from tests.simulate.faults import FaultPlan
from tests.simulate.gateways import SimulatedGateway
from tests.simulate.history import Answer, Attempt, History, SessionHistory
from tests.simulate.loop import SimulatedLoop, SimulatedProcess
from tests.simulate.network import WINDOWS, AnswerReader, Connection, LostError, request_bytes

TRIES = 6
PATIENCE_SECONDS = 90.0
OK, NO_CONTENT, NOT_FOUND = 200, 204, 404
OUTAGES = frozenset((400, 429, 500, 502, 503, 504))
"""Statuses of errors that may follow from a fault; an agent then asks again."""
WORDS = ("bridge", "river", "paper", "lamp", "stone", "window", "garden", "letter")


class Wire(Protocol):
    """A connection to a gateway, as a client uses it."""

    def send(self, data: bytes) -> None:
        """Send bytes."""

    async def read(self) -> bytes:
        """Return the next bytes; nothing at the end. Raises `LostError` where the connection broke."""

    def abandon(self) -> None:
        """Break the connection."""


@attrs.define(eq=False)
class World:
    """What all clients share: chance, faults, history, and a way to a gateway.

    Attributes:
        draws: What decides.
        plan: Which faults happen.
        history: Where everything is noted.
        patience: How many seconds a client waits for an answer.
    """

    draws: Draws
    plan: FaultPlan
    history: History
    patience: float = attrs.field(default=PATIENCE_SECONDS, kw_only=True)

    def now(self) -> float:
        """Return the time in seconds."""
        return self.history.clock()

    def spawn(self, client: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of a client."""
        raise NotImplementedError

    async def connect(self, client: str, attempt: Attempt | None) -> Wire:
        """Connect to a gateway; raises `LostError`."""
        raise NotImplementedError


@attrs.define(eq=False)
class SimulatedWorld(World):
    """A world in which clients and gateways are processes of one loop."""

    loop: SimulatedLoop
    gateways: Sequence[SimulatedGateway]
    _clients: dict[str, SimulatedProcess] = attrs.field(factory=dict, init=False)

    def spawn(self, client: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of a client."""
        return self.loop.spawn(self._process(client), work)

    async def connect(self, client: str, attempt: Attempt | None) -> Wire:
        """Connect to one of the gateways that listen; wait for one."""
        while not any(one.ready for one in self.gateways):  # noqa: ASYNC110  # as clients do that know no better
            await asyncio.sleep(0.1)
        gateway = self.draws.pick([one for one in self.gateways if one.ready])
        made = Connection(self.loop, self.draws, gateway.process, self._process(client), attempt)
        if self.plan.slow and self.draws.chance(0.5):
            made.window, made.slow = self.draws.pick(WINDOWS), 0.5
        gateway.connect(made)
        return made

    def _process(self, client: str) -> SimulatedProcess:
        if client not in self._clients:
            self._clients[client] = self.loop.process(client)
        return self._clients[client]


@attrs.define(eq=False)
class Client:
    """A program that sends requests.

    Attributes:
        world: What it shares with others.
        name: Its name in timelines.
    """

    world: World
    name: str

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        attempt: Attempt | None = None,
    ) -> Answer | None:
        """Send a request; return its answer as far as it came, None where nothing came."""
        named = {"content-type": "application/json", **(headers or {})}
        if attempt is not None:
            named["x-attempt"] = str(attempt.number)
        data = request_bytes(method, path, body, named)
        who = path if attempt is None else f"attempt {attempt.number}"
        how = self._misbehaviour(attempt)
        if how:
            self.world.history.note(self.name, f"{who}: {how}")
        reader = AnswerReader(method)
        try:
            wire = await self.world.connect(self.name, attempt)
            try:
                async with asyncio.timeout(self.world.patience):
                    await self._talk(wire, data, reader, how)
            finally:
                wire.abandon()
        except (LostError, TimeoutError, h11.RemoteProtocolError):
            self.world.history.note(self.name, f"{who}: the connection broke")
        return reader.answer()

    def _misbehaviour(self, attempt: Attempt | None) -> str:
        world = self.world
        if attempt is None or not world.plan.on or not world.draws.chance(world.plan.client):
            return ""
        return world.draws.pick(("leaves", "leaves", "leaves at a byte", "half", "pauses"))

    async def _talk(self, wire: Wire, data: bytes, reader: AnswerReader, how: str) -> None:
        """Send a request and read its answer, unless the client leaves before."""
        draws = self.world.draws
        cut = draws.below(len(data)) if how in ("half", "pauses") else 0
        if cut:
            wire.send(data[:cut])
            await asyncio.sleep(draws.between(0, 2))
        if how == "half":
            raise LostError
        wire.send(data[cut:])
        late = draws.between(0, 4) if how == "leaves" else None
        most = draws.below(2_000) if how == "leaves at a byte" else None
        try:
            async with asyncio.timeout(late):
                await _read(wire, reader, most)
        except TimeoutError:
            raise LostError from None


async def _read(wire: Wire, reader: AnswerReader, most: int | None) -> None:
    """Read an answer; leave after so many bytes."""
    count = 0
    while not reader.ended:
        data = await wire.read()
        if not data:
            raise LostError
        if most is not None and count + len(data) > most:
            reader.feed(data[: most - count])
            raise LostError
        count += len(data)
        reader.feed(data)


@attrs.define(eq=False)
class Agent(Client):
    """An agent with a session."""

    number: int = 0
    turns: int = 2
    session: SessionHistory | None = attrs.field(default=None, init=False)
    messages: list[dict[str, Any]] = attrs.field(factory=list, init=False)
    _asked: int = 0

    @property
    def label(self) -> str:
        """The word that all prompts of this agent have, and no others."""
        return f"agent{self.number}agent"

    async def live(self) -> None:
        """Open a session, and take turns in it until there are enough, or it is deleted."""
        draws = self.world.draws
        await asyncio.sleep(draws.between(0, 1))
        await self._open()
        assert self.session is not None
        self.messages = [{"role": "user", "content": f"I am {self.label}. {draws.pick(WORDS)}"}]
        deleting = self._deleting(self.session) if draws.chance(0.25) else None
        async with asyncio.TaskGroup() as group:
            if deleting is not None:
                group.create_task(deleting)
            for _ in range(self.turns):
                await self._step(group)

    async def _step(self, group: asyncio.TaskGroup) -> None:
        """Take a turn, at times with another one at the same time."""
        draws = self.world.draws
        if draws.chance(0.25):
            group.create_task(self.turn(self.body()))
        answer = await self.turn(self.body())
        if draws.chance(0.15):
            assert self.session is not None
            await self._read(self.session)
        if answer is None or answer.message is None:
            return
        more = {"role": "user", "content": f"{draws.pick(WORDS)} {self._asked}"}
        self.messages = [*self.messages, dict(answer.message), *_results(answer.message), more]
        if draws.chance(0.1):  # a branch: the agent forgets its last turn
            self.messages = [*self.messages[:-2], more]

    async def turn(self, body: bytes) -> Answer | None:
        """Ask for a turn until it is received; None where it never is."""
        world, draws = self.world, self.world.draws
        assert self.session is not None
        asked = orjson.loads(body)["user"]
        key = f"key-{asked}" if draws.chance(world.plan.keyed) else None
        for _ in range(TRIES):
            if world.plan.on and draws.chance(world.plan.client / 3):
                world.spawn(self.name, self._attempt(asked, body, key))  # the network sends it twice
            answer = await self._attempt(asked, body, key)
            if answer is not None and (answer.taken or answer.status == NOT_FOUND):
                return answer if answer.taken else None
            await asyncio.sleep(draws.between(0.01, 1))
        return None

    async def _attempt(self, asked: str, body: bytes, key: str | None) -> Answer | None:
        world = self.world
        assert self.session is not None
        attempt = world.history.attempt(self.session.name, asked, body, key)
        keyed = "" if key is None else " with a key"
        world.history.note(self.name, f"sends attempt {attempt.number} for {asked}{keyed}")
        headers = {} if key is None else {"idempotency-key": key}
        path = f"/sessions/{self.session.name}/v1/chat/completions"
        attempt.answer = await self.ask("POST", path, body, headers, attempt=attempt)
        world.history.note(self.name, f"attempt {attempt.number} gets {_said(attempt.answer)}")
        self._judge(attempt.answer)
        return attempt.answer

    def _judge(self, answer: Answer | None) -> None:
        """Note answers that no fault explains."""
        if answer is None or answer.status in (OK, NOT_FOUND):
            return
        plan = self.world.plan
        fenced = answer.kind == "session_moved" and not (
            plan.store or plan.pauses
        )  # a lease keeps others waiting
        if answer.kind == "internal_error" or answer.status not in OUTAGES or fenced or plan.quiet:
            self.world.history.odd.append(f"a turn is answered with {_said(answer)}")

    async def _open(self) -> None:
        world = self.world
        while True:
            answer = await self.ask("POST", "/sessions")
            if answer is not None and answer.complete and answer.status == OK:
                name = orjson.loads(answer.data)["session_id"]
                self.session = SessionHistory(name=name, label=self.label)
                world.history.sessions[name] = self.session
                world.history.note(self.name, f"opened session {name[:6]}")
                return
            await asyncio.sleep(world.draws.between(0.01, 1))

    async def _deleting(self, session: SessionHistory) -> None:
        """Delete the session at some moment; ask until that is known to have happened."""
        world = self.world
        await asyncio.sleep(world.draws.between(0, 8))
        session.deleting = world.now()
        world.history.note(self.name, "asks to delete its session")
        while session.deleted is None:
            answer = await self.ask("DELETE", f"/sessions/{session.name}")
            if answer is not None and answer.status in (NO_CONTENT, NOT_FOUND):
                session.deleted = world.now()
                world.history.note(self.name, "knows that its session is deleted")
            await asyncio.sleep(world.draws.between(0.01, 1))

    async def _read(self, session: SessionHistory) -> None:
        sent = self.world.now()
        answer = await self.ask("GET", f"/sessions/{session.name}")
        if answer is not None:
            self.world.history.reads.append((sent, answer.status, session.name))

    def body(self) -> bytes:
        """Return a request for the next turn, whose name no other one has."""
        draws = self.world.draws
        self._asked += 1
        body = {
            "messages": self.messages,
            "user": f"{self.number}.{self._asked}",
            "max_tokens": draws.pick((2, 12, 40)),
            "stream": draws.chance(0.5),
            "return_token_ids": True,
            **({"n": 2} if draws.chance(0.15) else {}),
        }
        return orjson.dumps(body)


def _results(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    return [{"role": "tool", "tool_call_id": one["id"], "content": "sunny"} for one in calls]


def _said(answer: Answer | None) -> str:
    if answer is None:
        return "nothing"
    whole = "" if answer.complete else ", cut"
    return f"{answer.status} {answer.kind or answer.name[-6:]}{whole}"
