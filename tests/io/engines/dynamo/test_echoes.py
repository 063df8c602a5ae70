"""Prompts that a Dynamo frontend need not repeat, and what is checked all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import httpx2
import pytest

from tests.io.engines.dynamo.dynamo_server import Turn, mocked
from tito_io.engines.protocol import InvalidReplyError, Rendering, Sampling

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
LONGER = (4, 5, 6, 7, 8, 9)
ROUTES: Any = ("chat", "completions")


@attrs.define
class Turns:
    """Answers one turn after the other, the last one again and again."""

    turns: list[Turn]

    def __call__(self, path: str, body: Mapping[str, Any]) -> httpx2.Response:
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        return turn(path, body)


def engine_of(route: Any, *turns: Turn) -> Any:
    """Return an engine that gets these turns, and its mock."""
    return mocked(Turns([*turns] or [Turn()]), route=route)


def echoes(mock: Any) -> list[bool]:
    """Return of each request whether the frontend is to repeat its prompt."""
    return ["prompt_token_ids" in body["nvext"]["extra_fields"] for _, body in mock.asked]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_stop_string_that_cuts_the_worker_off_leaves_the_count(route: str) -> None:
    engine, mock = engine_of(route, Turn(), Turn(engine=None), Turn(engine=None, usage=(5, 2)))
    for _ in range(2):
        assert (await engine.from_ids(LONGER, Sampling())).prompt_ids == LONGER
    with pytest.raises(InvalidReplyError, match="5 counted prompt ids for 6 prompt ids"):
        await engine.from_ids(LONGER, Sampling())
    assert echoes(mock) == [True, False, False]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_worker_that_saw_another_prompt_is_an_error_and_shakes_the_trust(route: str) -> None:
    other = Turn(engine={"prompt_token_ids": [4, 5, 6, 7, 8, 1]})
    engine, mock = engine_of(route, Turn(), other, Turn())
    await engine.from_ids(LONGER, Sampling())
    with pytest.raises(InvalidReplyError, match="reports other ids than the frontend"):
        await engine.from_ids(LONGER, Sampling())
    await engine.from_ids(LONGER, Sampling())
    assert echoes(mock) == [True, False, True]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_turn_that_another_worker_went_on_with_is_whole(route: str) -> None:
    moved = Turn(
        engine={"prompt_token_ids": [*LONGER, 7], "completion_token_ids": [8], "completion_logprobs": [-0.5]},
        usage=(7, 2),
    )
    engine, mock = engine_of(route, Turn(), moved)
    await engine.from_ids(LONGER, Sampling())
    reply = await engine.from_ids(LONGER, Sampling())
    assert (reply.prompt_ids, reply.completion_ids) == (LONGER, (7, 8))
    assert "migrated" in " ".join(reply.notices)
    assert echoes(mock) == [True, False]


async def test_a_frontend_that_never_repeats_is_asked_each_time() -> None:
    """The worker's word is taken, as before."""
    engine, mock = engine_of("chat", Turn(nvext={"prompt_token_ids": None}))
    for _ in range(2):
        assert (await engine.from_ids(LONGER, Sampling())).prompt_ids == LONGER
    assert echoes(mock) == [True, True]


async def test_messages_have_their_ids_come_back_each_time() -> None:
    engine, mock = engine_of("chat")
    for _ in range(2):
        await engine.from_ids(LONGER, Sampling())
        await engine.from_messages(HELLO, Rendering(), Sampling())
    assert echoes(mock) == [True, True, False, True]
