"""Forced calls and schemas on a real vLLM: every route keeps to them, in the template's own tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.engines.conftest import asked_for
from tests.engines.constrained import (
    DAY,
    TOOLED,
    TOOLS,
    calls,
    continue_forced_turns,
    require_call,
    require_day,
    require_text,
    sampled,
    sampling,
)
from tests.engines.server import Server
from tests.engines.talk import HELLO, marker_id
from tests.engines.vllm import vllm
from tests.io.engines.scripted import Heard
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import Rendering, Reply, Sampling
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

WAYS = ("messages", "completions", "generate", "chat")
SEEDS = range(4)


async def turn(
    server: Server, way: str, family: Family, asked: Sampling, rendering: Rendering, **more: Any
) -> Reply:
    route: Any = way if way != "messages" else "completions"
    async with VLLM(server.base_url, route=route) as engine:
        return await sampled(engine, family, asked, rendering, by_ids=way != "messages", **more)


@pytest.mark.parametrize("way", WAYS)
async def test_text_keeps_to_a_schema(vllm_server: Server, folder: Family, way: str) -> None:
    for seed in SEEDS:
        asked = sampling(folder, Constraint(schema=DAY), seed)
        reply = await turn(vllm_server, way, folder, asked, Rendering())
        require_text(reply)


@pytest.mark.parametrize("must_call", [(), ("listen",)])
@pytest.mark.parametrize("way", WAYS)
async def test_a_call_is_forced_in_the_template_s_own_tokens(
    vllm_server: Server, folder: Family, way: str, must_call: tuple[str, ...]
) -> None:
    tag = marker_id(folder, "<tool_call>")
    for seed in SEEDS:
        asked = sampling(folder, Constraint(must_call=must_call, one_call=True), seed)
        reply = await turn(vllm_server, way, folder, asked, TOOLED)
        require_call(reply, must_call, tag)
        prompt = folder.ids(HELLO, tools=TOOLS, add_generation_prompt=True)
        assert list(reply.prompt_ids) == list(prompt)  # nothing was added to the prompt


@pytest.mark.parametrize("way", ["completions", "generate"])
@pytest.mark.parametrize("opened", [False, True])
async def test_reasoning_is_free_and_the_answer_after_it_bound(
    vllm_server: Server, folder: Family, way: str, *, opened: bool
) -> None:
    ids = [*folder.ids(HELLO, add_generation_prompt=True), *folder.encode("<think>\n" if opened else "")]
    closed, thought = folder.tokenizer.token_to_id("</think>"), set()
    for seed in range(8):
        asked = sampling(folder, Constraint(schema=DAY), seed, think=0.0, **{"/think": 6.0})
        async with VLLM(vllm_server.base_url, route=way) as engine:  # type: ignore[arg-type]  # one of its routes
            reply = await engine.from_ids(ids, asked, Rendering())
        require_day((reply.message or {})["content"])
        thought.add(closed in reply.completion_ids)
    assert thought == ({True} if opened else {True, False})


@pytest.mark.parametrize("way", WAYS)
async def test_with_tools_a_schema_leaves_calls_possible(
    vllm_server: Server, folder: Family, way: str
) -> None:
    found = set()
    for seed in range(12):
        reply = await turn(vllm_server, way, folder, sampling(folder, Constraint(schema=DAY), seed), TOOLED)
        found.add(bool(calls(reply)))
        if not calls(reply):
            require_day((reply.message or {})["content"])
    assert found == {True, False}


@pytest.mark.parametrize("way", WAYS)
async def test_a_stream_says_the_same(vllm_server: Server, folder: Family, way: str) -> None:
    heard = Heard()
    asked = sampling(folder, Constraint(must_call=()), 7)
    whole = await turn(vllm_server, way, folder, asked, TOOLED)
    streamed = await turn(vllm_server, way, folder, asked, TOOLED, watch=heard)
    assert streamed.completion_ids == whole.completion_ids == heard.ids
    assert [one["name"] for one in calls(streamed)] == [one["name"] for one in calls(whole)]


async def test_a_forced_turn_is_continued_by_ids(vllm_server: Server, folder: Family) -> None:
    async with VLLM(vllm_server.base_url) as engine:
        await continue_forced_turns(engine, folder)


def test_a_server_that_leaves_reasoning_free_constrains_what_follows_it(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    asked_for("vllm-more")
    with vllm(say, tmp_path / "vllm.log", "--reasoning-parser=qwen3") as server:
        anyio.run(reasoned, server, Family.load(server.family))


async def reasoned(server: Server, family: Family) -> None:
    """Find out that the server waits for the end of the reasoning, and let it."""
    ids = [*family.ids(HELLO, add_generation_prompt=True), *family.encode("<think>\n")]
    for route in ("completions", "generate", "chat"):
        async with VLLM(server.base_url, route=route) as engine:
            for seed in SEEDS:
                asked = sampling(family, Constraint(schema=DAY), seed, think=0.0, **{"/think": 7.0})
                reply = await engine.from_ids(ids, asked, Rendering())
                assert marker_id(family, "</think>") in reply.completion_ids
                require_day((reply.message or {})["content"])
