"""The vLLM adapter against the embedded engine: the whole way, without a socket."""

from __future__ import annotations

from typing import Literal

import httpx2
import pytest

from tito_core import TemplateRefused
from tito_io.embedded import app, family
from tito_io.engines.protocol import Delta, OverlongError, Rendering, RequestError, Sampling
from tito_io.engines.vllm import VLLM

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
TOOLED = Rendering(tools=(TOOL,))
Route = Literal["completions", "chat"]
ROUTES: tuple[Route, ...] = ("completions", "chat")


def embedded(route: Route = "completions", seed: int = 0, context: int = 4096) -> VLLM:
    """Return an engine that asks an application in this process."""
    transport = httpx2.ASGITransport(app(seed, max_model_len=context))
    return VLLM("http://embedded", transport=transport, route=route)


async def test_it_renders_as_its_family_does() -> None:
    async with embedded() as engine:
        rendered = await engine.render(HELLO, TOOLED, add_generation_prompt=True)
    served = family().rendered_as("vllm")
    assert rendered == served.ids(HELLO, tools=[TOOL], add_generation_prompt=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rendering", [Rendering(), TOOLED])
async def test_every_way_samples_the_same_turn(seed: int, rendering: Rendering) -> None:
    sampling = Sampling(seed=seed, max_tokens=60)
    async with embedded(seed=seed) as engine, embedded("chat", seed=seed) as chat:
        first = await engine.from_messages(HELLO, rendering, sampling)
        others = [await one.from_ids(first.prompt_ids, sampling, rendering) for one in (engine, chat)]
    for reply in others:
        assert reply.completion_ids == first.completion_ids
        assert reply.logprobs == first.logprobs
        assert reply.truncated == first.truncated  # completions do not look for calls: they say "stop"


@pytest.mark.parametrize("opening", ["", "<think>", "<think>\n", "<think>\n\n</think>\n\n"])
async def test_deltas_say_that_the_prompt_leaves_reasoning_open(opening: str) -> None:
    told = list[Delta]()

    async def watch(delta: Delta) -> None:
        told.append(delta)

    async with embedded() as engine:
        ids = await engine.render(HELLO, TOOLED, add_generation_prompt=True)
        await engine.from_ids([*ids, *family().encode(opening)], Sampling(max_tokens=9), watch=watch)
    assert {delta.thinking for delta in told} == {opening.rstrip() == "<think>"}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seed", range(4))
async def test_a_streamed_turn_is_the_whole_one(seed: int, route: Route, n: int) -> None:
    sampling, heard = Sampling(seed=seed, max_tokens=60, n=n, temperature=1.0), list[Delta]()

    async def watch(delta: Delta) -> None:
        heard.append(delta)

    async with embedded(route, seed=seed) as engine:
        ids = await engine.render(HELLO, TOOLED, add_generation_prompt=True)
        whole = await engine.from_ids(ids, sampling, TOOLED)
        streamed = await engine.from_ids(ids, sampling, TOOLED, watch=watch)
    for index, (one, other) in enumerate(
        zip((streamed, *streamed.siblings), (whole, *whole.siblings), strict=True)
    ):
        assert (one.completion_ids, one.logprobs) == (other.completion_ids, other.logprobs)
        assert (one.finish_reason, one.stop_reason) == (other.finish_reason, other.stop_reason)
        told = tuple(each for delta in heard if delta.index == index for each in delta.ids)
        assert told == one.completion_ids
    assert streamed.usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("route", ROUTES)
async def test_ids_that_fill_the_context_are_overlong(route: Route) -> None:
    async with embedded(route, context=100) as engine:
        with pytest.raises(OverlongError, match="Nothing was sent"):
            await engine.from_ids([5] * 100, Sampling())
        assert len((await engine.from_ids([5] * 99, Sampling())).completion_ids) == 1


@pytest.mark.parametrize("route", ROUTES)
async def test_an_id_that_no_vocabulary_has_is_refused(route: Route) -> None:
    async with embedded(route) as engine:
        with pytest.raises(RequestError, match="out of vocabulary"):
            await engine.from_ids([family().vocab_size], Sampling())


async def test_messages_that_fill_the_context_are_overlong() -> None:
    async with embedded(context=100) as engine:
        with pytest.raises(OverlongError):
            await engine.from_messages([{"role": "user", "content": "so " * 500}], Rendering(), Sampling())


async def test_what_the_template_refuses_is_a_refusal() -> None:
    odd = [*HELLO, {"role": "poet", "content": "O"}]
    async with embedded() as engine:
        with pytest.raises(TemplateRefused):
            await engine.render(odd, Rendering(), add_generation_prompt=True)
