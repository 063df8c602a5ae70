"""A round: clients take turns while something is killed again and again, and then everything is compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

import attrs

from tests.io.serve.redis_server import Redis
from tests.kill.kinds import BEFORE, Kind
from tests.simulate.agents import Agent
from tests.simulate.checker import by_rule
from tests.simulate.history import History
from tests.simulate.real import RealWorld, collect, go_on, real_world

ROUND = 20
"""Kills in a round at most: what is killed starts with an empty store in the next one."""
MOST_REPLIES = 16
"""So many replies of the engine come between two kills at most; each number is as likely."""
MOMENT_SECONDS = 0.3
"""How long after the last of them the kill comes at most."""
STUCK_SECONDS = 60.0
"""After this time without so many replies the kill comes all the same."""
TURNS = 8
"""Turns of a session."""
PATIENCE_SECONDS = 3.0
"""How long a client waits for an answer before it asks again."""
FIGURES = {
    "lost": ("acknowledged_turns_are_stored", "stored_turns_are_trained", "calls_show_all_turns"),
    "trained twice": (
        "samplings_are_stored_once",
        "turns_train_once",
        "lost_turns_are_handed_out",
        "keys_name_one_turn",
    ),
    "wrong ids": (
        "received_ids_are_stored",
        "turns_are_what_was_sampled",
        "only_turns_are_trained",
        "calls_show_what_is_stored",
    ),
}
"""Which rules of the checker a figure counts; what contradicts the others is counted as `other`."""


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of kills.

    Attributes:
        kills: How many there were.
        acknowledged: Turns that clients received whole, in sessions that they did not delete.
        figures: How many turns were lost, trained twice, had wrong ids, or contradict something else.
        found: What was found, in words.
    """

    kills: int = 0
    acknowledged: int = 0
    figures: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys((*FIGURES, "other"), 0))
    found: tuple[str, ...] = ()

    @classmethod
    def of(cls, history: History, kills: int) -> Outcome:
        """Judge a history."""
        rules = by_rule(history)
        found = (*history.odd, *chain.from_iterable(rules.values()))
        figures = {name: sum(len(rules[rule]) for rule in names) for name, names in FIGURES.items()}
        figures["other"] = len(found) - sum(figures.values())
        return cls(kills=kills, acknowledged=acknowledged(history), figures=figures, found=found)

    def __add__(self, other: Outcome) -> Outcome:
        figures = {name: count + other.figures[name] for name, count in self.figures.items()}
        return Outcome(
            kills=self.kills + other.kills,
            acknowledged=self.acknowledged + other.acknowledged,
            figures=figures,
            found=self.found + other.found,
        )


def acknowledged(history: History) -> int:
    """Return how many responses clients have received whole and not deleted."""
    kept = {one.name for one in history.sessions.values() if one.deleting is None}
    answers = [one.answer for one in history.attempts if one.session in kept]
    return len({one.name for one in answers if one is not None and one.taken})


def rounds(kinds: Sequence[Kind], kills: int) -> Iterator[tuple[Kind, int]]:
    """Yield kinds in turn, each with the number of kills of its next round.

    >>> from tests.kill.kinds import KINDS
    >>> [(kind.name, count) for kind, count in rounds([KINDS["sqlite"], KINDS["pair"]], 61)]
    [('sqlite', 20), ('pair', 20), ('sqlite', 11), ('pair', 10)]
    """
    left = {kind: kills // len(kinds) + (place < kills % len(kinds)) for place, kind in enumerate(kinds)}
    while any(left.values()):
        for kind, count in left.items():
            left[kind] -= min(count, ROUND)
            if count:
                yield kind, min(count, ROUND)


async def play(kind: Kind, kills: int, clients: int, seed: int, done: Callable[[], object]) -> History:
    """Strike so many times, and return what was observed; `done` is called after each time."""
    with kind.store() as (address, redis):
        options = ("--store", address)
        async with real_world(*options, before=BEFORE, gateways=kind.gateways, seed=seed) as world:
            patience, world.patience = world.patience, PATIENCE_SECONDS
            over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                lives = [group.create_task(live(world, place, clients, over)) for place in range(clients)]
                for _ in range(kills):
                    await strike(kind, world, redis)
                    done()
                over.set()
            world.patience = patience
            await go_on(world, [one.result() for one in lives])
            await collect(world, address)
            return world.history


async def strike(kind: Kind, world: RealWorld, redis: Redis | None) -> None:
    """Strike at a random moment while clients take turns."""
    draws, samplings = world.draws, world.history.samplings
    goal = len(samplings) + 1 + draws.below(MOST_REPLIES)
    with suppress(TimeoutError):
        async with asyncio.timeout(STUCK_SECONDS):
            while len(samplings) < goal:  # noqa: ASYNC110  # nothing announces it
                await asyncio.sleep(0.005)
    await asyncio.sleep(draws.between(0, MOMENT_SECONDS))
    world.history.note("seed", f"strikes: {kind.what}")
    await kind.strike(world, redis)


async def live(world: RealWorld, place: int, clients: int, over: asyncio.Event) -> Agent:
    """Take turns in one session after the other until all is over; return the agent of the last one."""
    number = place
    while True:
        agent = Agent(world, f"client-{place}", number=number, turns=TURNS)
        await agent.live()
        if over.is_set():
            return agent
        number += clients
