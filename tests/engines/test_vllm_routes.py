"""Every route of a real vLLM, in one piece and streamed: the same ids, and nothing that does not add up."""

from __future__ import annotations

import json
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tests.engines.server import Server
from tests.engines.talk import CALL_PATTERN, HELLO, PLAIN, TOOLED
from tests.io.engines.scripted import Heard
from tito_core.normalization.canonical import normalize
from tito_io.engines.http_engine import ServedModel
from tito_io.engines.protocol import (
    Delta,
    ModelLimits,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    UnreachableError,
)
from tito_io.engines.vllm import VLLM
from tito_io.engines.wire import Wire
from tito_io.families.family import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

ROUTES = ("completions", "chat", "generate", "tokens")
WAYS = ("messages", *ROUTES)
TURNS = 20
"""Requests of each way for the invariants, and as many streamed: with those for two turns, three hundred."""


async def turn(
    engine: VLLM, way: str, family: Family, sampling: Sampling, rendering: Rendering = PLAIN, **options: Any
) -> Reply:
    """Return a turn after the same conversation by any way."""
    if way == "messages":
        return await engine.from_messages(HELLO, rendering, sampling, **options)
    ids = family.ids(HELLO, tools=rendering.tools or None, add_generation_prompt=True)
    return await engine.from_ids(ids, sampling, rendering, **options)


class Unsaid(VLLM):
    """An engine that does not know how long a context is."""

    async def served(self) -> ServedModel:
        return attrs.evolve(await super().served(), max_model_len=None)


def engine_of(server: Server, way: str, kind: type[VLLM] = VLLM, **options: Any) -> VLLM:
    """Return an engine that sends ids this way."""
    return kind(server.base_url, route=way if way in ROUTES else "completions", **options)  # type: ignore[arg-type]  # one of ROUTES


def same(streamed: Reply, whole: Reply) -> None:
    """Demand that two replies say the same."""
    bare: dict[str, Any] = {"raw": {}, "siblings": (), "message": None, "usage": streamed.usage}
    assert attrs.evolve(streamed, **bare) == attrs.evolve(whole, **bare)
    counts = [(one.usage.prompt_tokens, one.usage.completion_tokens) for one in (streamed, whole)]
    assert counts[0] == counts[1]
    forms = [normalize({**(one.message or {}), "tool_calls": []}) for one in (streamed, whole)]
    assert forms[0] == forms[1]
    calls = [list(map(called, (one.message or {}).get("tool_calls") or ())) for one in (streamed, whole)]
    assert calls[0] == calls[1]
    for one, other in zip(streamed.siblings, whole.siblings, strict=True):
        same(one, other)


def called(call: dict[str, Any]) -> tuple[str, Any]:
    """Return a call's name and arguments: the chat route writes them anew, but as sampled in a stream."""
    return call["function"]["name"], json.loads(call["function"]["arguments"])


def ends(family: Family) -> dict[str, tuple[Rendering, Sampling, tuple[str, object]]]:
    """Return ways to end a turn: what to ask for, and the finish and stop reasons that must come."""
    word, end = family.encode(" return")[0], family.tokenizer.token_to_id("<|im_end|>")
    only = {"allowed_token_ids": [word]}
    bias = {str(family.tokenizer.token_to_id(tag)): 100.0 for tag in ("<tool_call>", "</tool_call>")}
    calling = {"structured_outputs": {"regex": CALL_PATTERN}, "logit_bias": bias}
    seeded = Sampling(max_tokens=7, temperature=1.0, seed=3)
    return {
        "stop": (PLAIN, attrs.evolve(seeded, extra={"allowed_token_ids": [end]}), ("stop", None)),
        "length": (PLAIN, attrs.evolve(seeded, extra={"ignore_eos": True}), ("length", None)),
        "stop string": (PLAIN, attrs.evolve(seeded, stop=("turn re",), extra=only), ("stop", "turn re")),
        "stop id": (PLAIN, attrs.evolve(seeded, stop_ids=(word,), extra=only), ("stop", word)),
        "call": (TOOLED, attrs.evolve(seeded, max_tokens=99, extra=calling), ("tool_calls", None)),
        "n": (PLAIN, attrs.evolve(seeded, n=3, extra={"ignore_eos": True}), ("length", None)),
    }


@pytest.mark.parametrize("ending", ["stop", "length", "stop string", "stop id", "call", "n"])
async def test_every_way_ends_alike_in_one_piece_and_streamed(
    vllm_server: Server, folder: Family, ending: str
) -> None:
    rendering, sampling, expected = ends(folder)[ending]
    found: list[Reply] = []
    for way in WAYS:
        async with engine_of(vllm_server, way) as engine:
            heard = Heard()
            whole = await turn(engine, way, folder, sampling, rendering)
            streamed = await turn(engine, way, folder, sampling, rendering, watch=heard)
        same(streamed, whole)
        for index, one in enumerate((streamed, *streamed.siblings)):
            heard_one = heard.of(index)
            assert (heard_one.ids, heard_one.logprobs) == (one.completion_ids, one.logprobs)
        assert (whole.finish_reason, whole.stop_reason) == expected, way
        assert len(whole.siblings) == sampling.n - 1
        assert whole.notices == ()
        found.append(whole)
    assert len({one.completion_ids for one in found}) == 1, "every way samples the same ids"
    assert len({one.logprobs for one in found}) == 1
    assert len({one.text for one in found if one.finish_reason != "tool_calls"}) <= 1
    assert len({tuple(each.completion_ids for each in one.siblings) for one in found}) == 1


async def test_greedy_ids_are_the_same_by_every_way(vllm_server: Server, folder: Family) -> None:
    sampling = Sampling(max_tokens=20, temperature=0.0)
    found = set()
    for way in WAYS:
        async with engine_of(vllm_server, way) as engine:
            for watch in (None, Heard()):
                found.add((await turn(engine, way, folder, sampling, watch=watch)).completion_ids)
    assert len(found) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_hundreds_of_turns_break_no_invariant(vllm_server: Server, folder: Family, way: str) -> None:
    """Whatever does not add up raises, and so does not get here."""
    replies: list[tuple[Reply, Heard]] = []
    room = anyio.CapacityLimiter(8)  # as many as the server takes at once
    options: dict[str, Any] = {"vocab_size": folder.vocab_size}
    async with engine_of(vllm_server, way, **options) as engine, anyio.create_task_group() as tasks:

        async def one(seed: int, heard: Heard | None) -> None:
            extra = {"ignore_eos": True} if seed % 3 else {}
            sampling = Sampling(
                max_tokens=1 + seed % 14, temperature=1.3, seed=seed, n=1 + seed % 2, extra=extra
            )
            async with room:
                reply = await turn(engine, way, folder, sampling, TOOLED, watch=heard)
            if heard:
                replies.append((reply, heard))

        for seed in range(TURNS):
            tasks.start_soon(one, seed, None)
            tasks.start_soon(one, seed, Heard())
    assert len(replies) == TURNS
    for reply, heard in replies:
        for index, sibling in enumerate((reply, *reply.siblings)):
            heard_one = heard.of(index)
            assert (heard_one.ids, heard_one.logprobs) == (sibling.completion_ids, sibling.logprobs)


async def test_the_generate_route_says_which_weights_sampled(vllm_server: Server, folder: Family) -> None:
    async with engine_of(vllm_server, "generate") as engine:
        reply = await turn(engine, "generate", folder, Sampling(max_tokens=5, extra={"ignore_eos": True}))
    (span,) = reply.weight_versions
    assert (span.start, span.stop) == (0, 5)


async def test_limits_are_the_servers(vllm_server: Server, folder: Family) -> None:
    async with VLLM(vllm_server.base_url, vocab_size=folder.vocab_size) as engine:
        assert await engine.limits() == ModelLimits(max_model_len=8192, vocab_size=folder.vocab_size)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("route", ROUTES)
async def test_what_a_route_refuses_is_told(
    vllm_server: Server, folder: Family, route: str, watched: bool
) -> None:
    watch = Heard() if watched else None
    async with engine_of(vllm_server, route) as engine:
        with pytest.raises(RequestError, match=f"Token id {folder.vocab_size} is out of vocabulary"):
            await engine.from_ids([folder.vocab_size], Sampling(max_tokens=1), watch=watch)
    async with engine_of(vllm_server, route, Unsaid) as engine:
        with pytest.raises(OverlongError):
            await engine.from_ids([100] * 9000, Sampling(max_tokens=1), watch=watch)
    async with engine_of(vllm_server, route, model="nobody") as engine:
        with pytest.raises(RequestError, match="The model `nobody` does not exist"):
            await engine.from_ids([1], Sampling(max_tokens=1), watch=watch)


async def running(server: Server) -> int:
    """Return how many requests the server works on."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        metrics = (await client.get(f"{server.base_url}/metrics")).text
    lines = [line for line in metrics.splitlines() if line.startswith("vllm:num_requests_running")]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("route", ROUTES)
async def test_a_cancelled_stream_is_aborted_at_the_engine(vllm_server: Server, route: str) -> None:
    heard = Heard()
    sampling = Sampling(max_tokens=8000, extra={"ignore_eos": True})
    async with engine_of(vllm_server, route) as engine:
        with anyio.CancelScope() as scope:

            async def enough(delta: Delta) -> None:
                await heard(delta)
                if len(heard.of(0).ids) >= 5:
                    scope.cancel()

            await engine.from_ids([100], sampling, watch=enough)
        assert scope.cancelled_caught
        with anyio.fail_after(10):
            while await running(vllm_server):  # noqa: ASYNC110  # the event is another process's
                await anyio.sleep(0.1)
        assert len((await engine.from_ids([100], Sampling(max_tokens=2))).completion_ids) == 2


@pytest.mark.parametrize("watched", [False, True])
async def test_a_slow_server_is_unreachable(vllm_server: Server, watched: bool) -> None:
    async with VLLM(vllm_server.base_url) as engine:
        await engine.from_ids([100], Sampling(max_tokens=1))
        await engine.from_ids([100], Sampling(max_tokens=1), watch=Heard())
        await engine.wire.aclose()
        engine.wire = Wire.to(vllm_server.base_url, timeout=0.2)  # it knows the server, and is now impatient
        with vllm_server.paused(), pytest.raises(UnreachableError, match="no answer in time"):
            await engine.from_ids([100], Sampling(max_tokens=2), watch=Heard() if watched else None)
