"""Forced calls and schemas on a real SGLang, which keeps to them on its route for ids alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.constrained import (
    DAY,
    TOOLED,
    TOOLS,
    calls,
    continue_forced_turns,
    require_call,
    require_text,
    sampled,
    sampling,
)
from tests.engines.server import Server
from tests.engines.talk import HELLO, marker_id
from tests.io.engines.scripted import Heard
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import Rendering, Reply, Sampling
from tito_io.engines.sglang import SGLang
from tito_io.families.family import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

WAYS = ("messages", "ids")
SEEDS = range(4)


@pytest.fixture(scope="module")
def family(sglang_server: Server) -> Family:
    """Load the folder of the model that SGLang serves."""
    return Family.load(sglang_server.family)


async def turn(
    server: Server, way: str, family: Family, asked: Sampling, rendering: Rendering, **more: Any
) -> Reply:
    async with SGLang(server.base_url) as engine:
        return await sampled(engine, family, asked, rendering, by_ids=way != "messages", **more)


@pytest.mark.parametrize("way", WAYS)
async def test_text_keeps_to_a_schema(sglang_server: Server, family: Family, way: str) -> None:
    for seed in SEEDS:
        asked = sampling(family, Constraint(schema=DAY), seed)
        reply = await turn(sglang_server, way, family, asked, Rendering())
        require_text(reply)


@pytest.mark.parametrize("must_call", [(), ("listen",)])
@pytest.mark.parametrize("way", WAYS)
async def test_a_call_is_forced_in_the_template_s_own_tokens(
    sglang_server: Server, family: Family, way: str, must_call: tuple[str, ...]
) -> None:
    tag = marker_id(family, "<tool_call>")
    prompt = family.ids(HELLO, tools=TOOLS, add_generation_prompt=True)
    if way == "messages":  # the server adds keys to tools before it renders them
        async with SGLang(sglang_server.base_url) as engine:
            prompt = list(await engine.render(HELLO, TOOLED, add_generation_prompt=True))
    for seed in SEEDS:
        asked = sampling(family, Constraint(must_call=must_call, one_call=True), seed)
        reply = await turn(sglang_server, way, family, asked, TOOLED)
        require_call(reply, must_call, tag)
        assert list(reply.prompt_ids) == list(prompt)  # nothing was added to the prompt


@pytest.mark.parametrize("way", WAYS)
async def test_a_stream_keeps_to_a_forced_call(sglang_server: Server, family: Family, way: str) -> None:
    heard = Heard()
    asked = sampling(family, Constraint(must_call=("look",), one_call=True), 7)
    reply = await turn(sglang_server, way, family, asked, TOOLED, watch=heard)
    assert reply.completion_ids == heard.ids
    assert [called["name"] for called in calls(reply)] == ["look"]


async def test_a_forced_turn_is_continued_by_ids(sglang_server: Server, family: Family) -> None:
    async with SGLang(sglang_server.base_url) as engine:
        await continue_forced_turns(engine, family)
