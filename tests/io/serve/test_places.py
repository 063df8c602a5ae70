"""Sessions get their places at the engine in turn, and no place is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.io.serve.gateway import HELLO, Scripted, client, limited, opened, scripted_gateway
from tito_io.serve.places import Places

pytestmark = pytest.mark.anyio


async def served(count: int, sessions: list[str], left: set[int]) -> tuple[list[str], list[int]]:
    """Return the sessions of turns in the order in which they got places, and what was running each time.

    Turns begin in the order of `sessions`, and the numbers in `left` are cancelled while they wait.
    """
    places, order, running, now = Places(count), list[str](), list[int](), Counter[str]()
    begin, scopes = anyio.Event(), [anyio.CancelScope() for _ in sessions]

    async def turn(number: int, session: str) -> None:
        with scopes[number]:
            async with places.of(session):
                order.append(session)
                now["running"] += 1
                running.append(now["running"])
                await begin.wait()
                await anyio.lowlevel.checkpoint()
                now["running"] -= 1

    async with anyio.create_task_group() as group:
        for number, session in enumerate(sessions):
            group.start_soon(turn, number, session)
            await anyio.wait_all_tasks_blocked()
        assert places.waiting == max(len(sessions) - count, 0)
        for number in left:
            scopes[number].cancel()
        begin.set()
    assert (places.free, places.waiting) == (count, 0)
    return order, running


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4), st.lists(st.sampled_from("abc"), max_size=14), st.sets(st.integers(0, 13), max_size=4)
)
def test_every_turn_gets_one_of_the_places(count: int, sessions: list[str], left: set[int]) -> None:
    waiting = {number for number in left if count <= number < len(sessions)}
    order, running = anyio.run(served, count, sessions, waiting)
    kept = [one for number, one in enumerate(sessions) if number not in waiting]
    assert Counter(order) == Counter(kept)
    assert max(running, default=0) <= count


async def test_a_session_with_many_turns_delays_another_by_one_turn() -> None:
    order, _ = await served(1, ["a", "a", "a", "a", "b", "c", "b"], set())
    assert order == ["a", "a", "b", "c", "a", "b", "a"]


async def test_a_place_is_passed_on_by_a_turn_that_ends_as_it_gets_it() -> None:
    places, got = Places(1), list[str]()
    scope = anyio.CancelScope()

    async def turn(session: str) -> None:
        with scope if session == "gone" else anyio.CancelScope():
            async with places.of(session):
                got.append(session)

    async with anyio.create_task_group() as group, places.of("first"):
        for session in ("gone", "next"):
            group.start_soon(turn, session)
            await anyio.wait_all_tasks_blocked()
        scope.cancel()  # it has not run since, and gets the place
    assert (got, places.free, places.waiting) == (["next"], 1, 0)


async def test_an_agent_with_one_request_does_not_wait_for_all_those_of_another() -> None:
    engine = Scripted(held=anyio.Event())
    gateway = scripted_gateway(engine, choices=limited(calls=1))
    ended = list[str]()

    async def ask(http: httpx2.AsyncClient, agent: str, name: str) -> None:
        body: dict[str, Any] = {"messages": HELLO}
        answer = await http.post(f"/sessions/{name}/v1/chat/completions", json=body)
        assert answer.status_code == 200
        ended.append(agent)

    async with client(gateway) as http:
        busy, other = await opened(http), await opened(http)
        async with anyio.create_task_group() as group:
            for agent, name in (*[("busy", busy)] * 6, ("other", other)):
                group.start_soon(ask, http, agent, name)
                await anyio.wait_all_tasks_blocked()
            engine.go_on()
    assert ended.index("other") <= 2
