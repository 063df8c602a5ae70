"""One simulation: a world from a seed, its life, and what is found at its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import orjson

from tests.simulate.agents import NOT_FOUND, OK, Agent, Client, SimulatedWorld
from tests.simulate.checker import violations
from tests.simulate.draws import Draws
from tests.simulate.faults import FaultPlan
from tests.simulate.gateways import SimulatedGateway, known_template
from tests.simulate.history import History, SessionHistory, StoredTurn, TrainingRow
from tests.simulate.loop import START, SimulatedLoop, StuckError
from tests.simulate.stores import RedisServer, SqliteDisk
from tests.simulate.substitutes import simulated
from tito_io.serve.commit import Commit
from tito_io.serve.refusals import GatewayLimits
from tito_io.serve.session import Session
from tito_io.serve.store import GoneError, Store

FAULTY_SECONDS = 120.0
"""How long agents may take; those that are late are ended."""
QUIET_SECONDS = 40.0
"""How long nothing new goes wrong before the last questions: longer than a lease, a lost command, a delay."""
ASKS = 3
MEMORY = "/dev/shm"  # noqa: S108  # Linux keeps this folder in memory


@attrs.frozen(kw_only=True)
class Result:
    """What came of a seed.

    Attributes:
        seed: The seed.
        setting: The kind of store, and the faults, in words.
        violations: What contradicts the documentation.
        timeline: What happened, a line each.
        counts: How often things happened.
    """

    seed: int
    setting: str
    violations: list[str]
    timeline: str = attrs.field(repr=False)
    counts: dict[str, int]


def run(seed: int) -> Result:
    """Simulate a seed, and judge its history."""
    known_template()
    draws = Draws(seed)
    loop = SimulatedLoop(draws)
    history = History(loop.time, START)
    plan = FaultPlan.drawn(draws)
    with _quiet(), tempfile.TemporaryDirectory(prefix="tito-simulate-", dir=_memory()) as folder:
        scenario = Scenario(seed, draws, loop, history, plan, Path(folder))
        loop.set_exception_handler(lambda _, found: history.odd.append(_failure(found)))
        with simulated(loop, draws, history):
            try:
                loop.run_until_complete(scenario.play())
            except StuckError as error:
                history.odd.append(str(error))
            found = violations(history)
            timeline, counts = history.text(), _counts(history)
            _end(loop)
    return Result(seed=seed, setting=scenario.setting, violations=found, timeline=timeline, counts=counts)


@attrs.define(eq=False)
class Scenario:
    """The world of one seed."""

    seed: int
    draws: Draws
    loop: SimulatedLoop
    history: History
    plan: FaultPlan
    folder: Path
    gateways: list[SimulatedGateway] = attrs.field(factory=list, init=False)
    storage: SqliteDisk | RedisServer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        draws = self.draws
        kind = draws.pick(("sqlite", "durable", "redis"))
        if kind == "redis":
            self.plan.power = False
            self.storage = RedisServer(self.loop, draws, self.plan, self.history)
        else:
            self.plan.power = self.plan.power and kind == "durable"
            self.storage = SqliteDisk(self.folder, kind == "durable", self.loop.time)
        cold = draws.chance(0.02)
        local = draws.chance(0.3) and not cold
        count = 2 if kind == "redis" and draws.chance(0.7) else 1
        for number in range(1, count + 1):
            parts = self.loop, draws, self.plan, self.history, self.storage, cold, local
            self.gateways.append(SimulatedGateway(f"gateway-{number}", *parts))

    @property
    def setting(self) -> str:
        """The world in words."""
        store = "Redis"
        if isinstance(self.storage, SqliteDisk):
            store = f"SQLite{', durable' if self.storage.durable else ''}"
        plan = attrs.asdict(self.plan, filter=attrs.filters.exclude("on"))
        faults = ", ".join(f"{name} {value:.3g}" for name, value in plan.items() if value)
        return f"{store}, gateways: {len(self.gateways)}, faults: {faults}"

    async def play(self) -> None:
        """Let agents live under faults, then ask the last questions."""
        self.history.note("seed", f"{self.seed}: {self.setting}")
        for gateway in self.gateways:
            gateway.start()
        world = SimulatedWorld(self.draws, self.plan, self.history, self.loop, self.gateways)
        count = 1 + self.draws.below(3)
        agents = [
            Agent(world, f"agent-{number}", number=number, turns=1 + self.draws.below(4))
            for number in range(1, count + 1)
        ]
        lives = [world.spawn(agent.name, agent.live()) for agent in agents]
        disaster = self.loop.spawn(self.loop.outside, self._disasters())
        _, late = await asyncio.wait(lives, timeout=FAULTY_SECONDS)
        for life in [*late, disaster]:
            life.cancel()
        await asyncio.wait([*lives, disaster])
        for life in lives:
            error = None if life.cancelled() else life.exception()
            if error is not None:
                raise error
        await self._settle()
        for agent in agents:
            await self._last_turn(agent)
        await self._collect(world)

    async def _disasters(self) -> None:
        """Kill gateways and let them stand still, each at some callback or moment."""
        draws = self.draws
        wounds = ["death"] * self.plan.deaths + ["pause"] * self.plan.pauses
        while wounds:
            await asyncio.sleep(draws.between(0, 8))
            gateway = draws.pick(self.gateways)
            if not gateway.ready:
                continue
            if wounds.pop(draws.below(len(wounds))) == "death":
                gateway.process.dies_at = gateway.process.steps + 1 + draws.below(150)
            else:
                gateway.process.paused = self.loop.time() + draws.between(0.1, 20)
                self.history.note(gateway.name, f"stands still until {gateway.process.paused - START:.1f}")

    async def _settle(self) -> None:
        self.plan.on = False
        for gateway in self.gateways:
            gateway.process.dies_at = None
        self.history.note("seed", "no more faults")
        await asyncio.sleep(QUIET_SECONDS)
        self.plan.quiet = True
        if not all(gateway.ready for gateway in self.gateways):
            self.history.odd.append("a gateway does not listen, although nothing fails any more")

    async def _last_turn(self, agent: Agent) -> None:
        """Demand that a session goes on once nothing fails any more."""
        if agent.session is None or agent.session.deleting is not None:
            return
        last = agent.turn(agent.body())
        answer = await asyncio.wait_for(agent.world.spawn(agent.name, last), 300)
        if answer is None:
            self.history.odd.append(f"{agent.label}: nothing fails any more, and its session does not go on")

    async def _collect(self, world: SimulatedWorld) -> None:
        """Read all sessions by the API and from the store."""
        client = Client(world, "collector")
        for session in self.history.sessions.values():
            await world.spawn(client.name, read_rows(client, session))
            session.left = self.storage.left(session.name)
            store: Any = self.gateways[0].gateway.sessions.store
            session.turns += await stored_turns(store.inner, session.name)
            self.history.note(
                "collector",
                f"{session.label}: {session.status}, {len(session.turns)} turns, {len(session.rows)} rows",
            )


async def stored_turns(store: Store, name: str) -> list[StoredTurn]:
    """Return the turns of a session as a store has them."""
    try:
        stored = await store.load(name)
    except GoneError:
        return []
    whole = Session.restored(name, stored, store, GatewayLimits(), 0)
    return [_turn(commit, received=commit.name not in whole.unreceived) for commit in whole.commits.values()]


def _turn(commit: Commit, *, received: bool) -> StoredTurn:
    step, origin = commit.step, commit.origin
    return StoredTurn(
        name=commit.name,
        response=commit.response,
        asked=str(origin.request.get("user")),
        key=origin.retry_key is not None,
        received=received,
        prompt=tuple(step.prompt_ids.tolist()),
        ids=tuple(step.completion_ids.tolist()),
        logprobs=tuple(step.logprobs or ()),
    )


async def read_rows(client: Client, session: SessionHistory) -> None:
    """Read a session's training rows, as a trainer does."""
    for _ in range(ASKS):
        path = f"/sessions/{session.name}/samples"
        answer = await client.ask("GET", path, headers={"accept": "application/json"})
        if answer is None or not answer.complete:
            continue
        session.status = answer.status
        if answer.status == OK:
            session.rows = [_row(one) for one in orjson.loads(answer.data)["samples"]]
        if answer.status in (OK, NOT_FOUND):
            return


def _row(sample: dict[str, Any]) -> TrainingRow:
    tokens, length = tuple(sample["tokens"]), len(sample["loss_mask"])
    before = len(tokens) - length
    found = sample["rollout_log_probs"]
    logprobs = None if found is None else (*(0.0,) * before, *found)
    return TrainingRow(tokens=tokens, mask=(*(0,) * before, *sample["loss_mask"]), logprobs=logprobs)


def _failure(found: dict[str, Any]) -> str:
    error = found.get("exception")
    return f"{found['message']}: {type(error).__name__} {error}"


def _end(loop: SimulatedLoop) -> None:
    """End a loop, and all that it leaves: coroutines of dead processes that never began are no mistake."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        loop.run_until_complete(loop.bury())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        gc.collect()


def _counts(history: History) -> dict[str, int]:
    return {
        "attempts": len(history.attempts),
        "received": sum(one.answer is not None and one.answer.taken for one in history.attempts),
        "sampled": len(history.samplings),
        "turns": sum(len(one.turns) for one in history.sessions.values()),
        "not received": sum(not turn.received for one in history.sessions.values() for turn in one.turns),
        "deaths": sum("is killed" in one.text or "power" in one.text for one in history.events),
        "deleted": sum(one.deleted is not None for one in history.sessions.values()),
    }


def _memory() -> str | None:
    """Return a folder in memory, where there is one."""
    return MEMORY if os.access(MEMORY, os.W_OK) else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the gateway from logging, and the collector from running at a moment that depends on memory."""
    gc.disable()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
