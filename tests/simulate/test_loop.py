"""The loop of simulations: time, order, and processes that end at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tests.simulate.draws import Draws
from tests.simulate.loop import START, SimulatedLoop, StuckError


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = SimulatedLoop(Draws(1))
    yield made
    made.run_until_complete(made.bury())
    made.close()


def test_time_jumps_to_the_next_timer(loop: SimulatedLoop) -> None:
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == START + 86_400


def test_what_waits_for_nothing_is_noticed(loop: SimulatedLoop) -> None:
    with pytest.raises(StuckError, match="waits"):
        loop.run_until_complete(asyncio.Event().wait())


def test_a_process_that_dies_runs_no_finally_and_no_timer(loop: SimulatedLoop) -> None:
    seen: list[str] = []

    async def work() -> None:
        loop.call_later(1, seen.append, "a timer")
        try:
            seen.append("begins")
            await asyncio.sleep(2)
        finally:
            seen.append("finally")

    process = loop.process("p")
    loop.spawn(process, work())
    loop.call_later(0.5, loop.kill, process)
    loop.run_until_complete(asyncio.sleep(10))
    assert seen == ["begins"]


def test_a_process_that_stands_still_goes_on_later(loop: SimulatedLoop) -> None:
    process, seen = loop.process("p"), list[float]()

    async def work() -> None:
        await asyncio.sleep(1)
        seen.append(loop.time() - START)

    loop.spawn(process, work())
    process.paused = START + 5
    loop.run_until_complete(asyncio.sleep(10))
    assert seen == [6]  # it also began 5 s late


def test_a_process_keeps_its_order_and_a_seed_mixes_processes() -> None:
    orders = set()
    for seed in range(20):
        made, seen = SimulatedLoop(Draws(seed)), list[str]()

        async def wait() -> None:
            await asyncio.sleep(1)

        for process in (made.process("a"), made.process("b")):
            for number in range(3):
                made.call_soon(seen.append, f"{process.name}{number}", context=process.context())
        made.run_until_complete(wait())
        made.close()
        assert [one for one in seen if one[0] == "a"] == ["a0", "a1", "a2"]
        orders.add(tuple(seen))
    assert len(orders) > 5


def test_children_belong_to_the_process_of_their_parent(loop: SimulatedLoop) -> None:
    process, seen = loop.process("p"), list[int]()

    async def child() -> None:
        await asyncio.sleep(1)
        seen.append(1)

    async def parent(work: Coroutine[Any, Any, None]) -> None:
        await asyncio.gather(work, asyncio.sleep(3))

    loop.spawn(process, parent(child()))
    loop.call_later(0.5, loop.kill, process)
    loop.run_until_complete(asyncio.sleep(10))
    assert seen == []
