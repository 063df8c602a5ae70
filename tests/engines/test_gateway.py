"""The gateway as its command starts it, between the clients that agents really use and a real engine.

Fifty turns with tools by each client. What the engine sampled is read from its own bytes (`proxied.py`), and
what the gateway keeps, shows and hands out as samples must be those ids, every one.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from safetensors.numpy import load

from tests.io.embedded.embedded_client import WEATHER
from tests.io.engines.miles.test_router import run_agent
from tests.io.serve.gateway import HELLO, opened, user
from tests.io.serve.gateway_agents import Agent, grown
from tests.io.serve.gateway_process import started
from tests.io.serve.test_clients import results, streamed
from tito_io.engines.miles import MilesRouter
from tito_io.families.family import Family

from .proxied import Proxy, Sampled, proxied
from .server import Server

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
TURNS = 50
MOST = 120
"""The most ids of a turn, plenty for each of the proxy's patterns."""
CUT = 5
"""The most of every eleventh turn, which is cut short."""
MESSAGES, IDS = "/v1/chat/completions", {"vllm": "/v1/completions", "sglang": "/generate"}
"""Where turns by messages go, and turns by ids."""
CALLS = 20
"""So many calls at least are among fifty turns: every other turn that is not cut calls."""
TOOLS: Any = [WEATHER]
FUNCTION: Any = WEATHER["function"]
TOOL: Any = {"name": FUNCTION["name"], "description": "Weather", "input_schema": FUNCTION["parameters"]}


@attrs.frozen
class Place:
    """A gateway in front of an engine."""

    engine: str
    url: str
    proxy: Proxy
    family: Family

    async def refusals(self) -> dict[str, float]:
        """Return the reasons for turns by messages although there was a step, and how many had them."""
        async with httpx2.AsyncClient(base_url=self.url) as http:
            text = (await http.get("/metrics")).text
        found = re.findall(r'^tito_refusals_total{reason="(\w+)"} (\S+)$', text, re.MULTILINE)
        return {reason: float(count) for reason, count in found}


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Start `tito serve` in front of a real engine."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    store, family = tmp_path_factory.mktemp("gateway") / "sessions.db", Family.load(server.family)
    with (
        proxied(request.param, server.base_url, family) as proxy,
        started(*options(request.param, proxy, store), *texts_compared(server)) as process,
    ):
        yield Place(request.param, process.url, proxy, family)


def texts_compared(server: Server) -> tuple[str, ...]:
    """Return options by which each turn that goes by ids is an error if its text is not that of its ids."""
    return "--family", str(server.family), "--on-other-text", "raise"


def options(engine: str, proxy: Proxy, store: Path) -> tuple[str, ...]:
    """Return what a gateway in front of a proxy is started with."""
    return ("--engine", engine, "--base-url", proxy.url, "--store", f"sqlite:{store}")


@attrs.frozen
class Told:
    """What a client was told."""

    name: str
    """The session's."""
    calls: list[str] = attrs.field(factory=list)
    """The arguments of every call."""


def most(turn: int) -> int:
    """Return how long a turn may be."""
    return CUT if turn % 11 == 7 else MOST


async def chat(place: Place, told: Told) -> None:
    async with AsyncOpenAI(
        base_url=f"{place.url}/sessions/{told.name}/v1", api_key="-", max_retries=0
    ) as client:
        messages: list[Any] = list(HELLO)
        for turn in range(TURNS):
            reply = await client.chat.completions.create(
                model="any", messages=messages, tools=TOOLS, max_completion_tokens=most(turn)
            )
            said = reply.choices[0].message.model_dump(exclude_none=True)
            calls = said.get("tool_calls", [])
            told.calls.extend(call["function"]["arguments"] for call in calls)
            messages = [*messages, said, *(results(calls) or [user(f"Turn {turn}, go on.")])]


async def chat_streamed(place: Place, told: Told) -> None:
    ids: list[int] = []
    async with AsyncOpenAI(
        base_url=f"{place.url}/sessions/{told.name}/v1", api_key="-", max_retries=0
    ) as client:
        messages: list[Any] = list(HELLO)
        for turn in range(TURNS):
            said = await streamed(client, messages, ids)
            calls = said.get("tool_calls", [])
            told.calls.extend(call["function"]["arguments"] for call in calls)
            messages = [*messages, said, *(results(calls) or [user(f"Turn {turn}, go on.")])]
    assert ids == [one for turn in place.proxy.turns for one in turn.completion_ids]


async def responses(place: Place, told: Told) -> None:
    async with AsyncOpenAI(
        base_url=f"{place.url}/sessions/{told.name}/v1", api_key="-", max_retries=0
    ) as client:
        items: list[Any] = [{"role": "user", "content": "Where is the bridge?"}]
        tool: Any = {"type": "function", **FUNCTION, "strict": False}
        for turn in range(TURNS):
            reply = await client.responses.create(
                model="any", input=items, tools=[tool], max_output_tokens=most(turn), instructions="Be brief."
            )
            said = [item.model_dump(exclude_none=True) for item in reply.output]
            calls = [item for item in said if item["type"] == "function_call"]
            told.calls.extend(call["arguments"] for call in calls)
            answers: list[Any] = [
                {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
                for call in calls
            ]
            items = [*items, *said, *(answers or [user(f"Turn {turn}, go on.")])]


async def anthropic(place: Place, told: Told, *, stream: bool = False) -> None:
    async with AsyncAnthropic(
        base_url=f"{place.url}/sessions/{told.name}", api_key="-", max_retries=0
    ) as client:
        messages: list[Any] = list(HELLO)
        for turn in range(TURNS):
            asked: Any = {"model": "any", "max_tokens": most(turn), "tools": [TOOL], "system": "Be brief."}
            if stream:
                async with client.messages.stream(messages=messages, **asked) as events:
                    reply = await events.get_final_message()
            else:
                reply = await client.messages.create(messages=messages, **asked)
            content = [block.model_dump(exclude_none=True) for block in reply.content]
            used = [block for block in content if block["type"] == "tool_use"]
            told.calls.extend(str(one["input"]) for one in used)
            answers: Any = [
                {"type": "tool_result", "tool_use_id": one["id"], "content": "sunny"} for one in used
            ]
            messages = [
                *messages,
                {"role": "assistant", "content": content},
                {"role": "user", "content": answers or f"Turn {turn}, go on."},
            ]


async def anthropic_streamed(place: Place, told: Told) -> None:
    await anthropic(place, told, stream=True)


CLIENTS: Mapping[str, Callable[[Place, Told], Awaitable[None]]] = {
    "openai's chat": chat,
    "openai's chat, streamed": chat_streamed,
    "openai's responses": responses,
    "anthropic's messages": anthropic,
    "anthropic's messages, streamed": anthropic_streamed,
}


@asynccontextmanager
async def asking(place: Place) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=place.url, timeout=120) as http:
        yield http


@pytest.mark.parametrize("client", CLIENTS)
async def test_fifty_turns_with_tools_keep_every_id_that_the_engine_sampled(
    place: Place, client: str
) -> None:
    place.proxy.forget()
    before = await place.refusals()
    async with asking(place) as http:
        told = Told(await opened(http))
        await CLIENTS[client](place, told)
        await kept(place, http, told.name, TURNS)
    assert len(told.calls) >= CALLS, told.calls
    assert [turn.path for turn in place.proxy.turns] == [MESSAGES, *[IDS[place.engine]] * (TURNS - 1)]
    assert await place.refusals() == before == {}
    assert spelled_otherwise(place) >= TURNS // 5


def spelled_otherwise(place: Place) -> int:
    """Return how many turns have other ids than a tokenizer would give their text: MITO would lose those."""
    family, sampled = place.family, [turn.completion_ids for turn in place.proxy.turns]
    return sum(family.encode(family.decode(ids)) != ids for ids in sampled)


async def kept(place: Place, http: httpx2.AsyncClient, name: str, turns: int) -> None:
    """Demand that records and samples have just what the engine saw and sampled."""
    sampled = place.proxy.turns
    assert len(sampled) == turns
    for one, other in pairwise(sampled):
        whole = one.prompt_ids + one.completion_ids
        assert other.prompt_ids[: len(whole)] == whole
    records = (await http.get(f"/sessions/{name}")).json()["records"]
    for record, turn in zip(records, sampled, strict=True):
        info = record["response"]["choices"][0]["meta_info"]
        assert record["request"]["input_ids"] == turn.prompt_ids
        assert [pair[1] for pair in info["output_token_logprobs"]] == turn.completion_ids
        assert [pair[0] for pair in info["output_token_logprobs"]] == turn.logprobs
    rows(load((await http.post(f"/sessions/{name}/samples", json={})).content), sampled)


def rows(tensors: Mapping[str, Any], sampled: list[Sampled]) -> None:
    """Demand one row that trains just what was sampled."""
    assert {name for name in tensors if name.startswith("tokens.")} == {"tokens.0"}
    last = sampled[-1]
    tokens, mask = tensors["tokens.0"].tolist(), tensors["loss_mask.0"].tolist()
    assert tokens == last.prompt_ids + last.completion_ids
    start = len(tokens) - len(mask)
    assert start == len(sampled[0].prompt_ids)
    trained = [one for one, own in zip(tokens[start:], mask, strict=True) if own]
    assert trained == [one for turn in sampled for one in turn.completion_ids]
    values = zip(tensors["rollout_log_probs.0"].tolist(), mask, strict=True)
    assert [value for value, own in values if own] == [one for turn in sampled for one in turn.logprobs]


async def test_miles_agent_runs_unchanged(place: Place) -> None:
    place.proxy.forget()
    sampling = {"max_new_tokens": 64, "temperature": 1.0, "top_p": None}
    async with MilesRouter(place.url) as router:
        rolled = await router.run(run_agent, HELLO, sampling, metadata={"bonus": 2}, max_seq_len=8000)
    assert rolled.error is None, rolled.error
    assert rolled.returned == {"reward": 2.0, "seen": 8000}
    first, second = place.proxy.turns
    (sample,) = rolled.samples.samples
    assert sample.tokens == tuple(second.prompt_ids + second.completion_ids)
    trained = zip(sample.tokens[-sample.response_length :], sample.loss_mask or (), strict=True)
    assert [one for one, own in trained if own] == first.completion_ids + second.completion_ids
    assert sample.reward == 2.0


async def test_kills_of_the_gateway_change_no_id_that_a_client_received(place: Place, tmp_path: Path) -> None:
    """It renders by the engine here; what it was sampling when it was killed is asked for again."""
    place.proxy.forget()
    agent = Agent("")
    for _ in range(3):
        with started(*options(place.engine, place.proxy, tmp_path / "sessions.db")) as process:
            async with httpx2.AsyncClient(base_url=process.url, timeout=60) as http:
                agent.name = agent.name or await opened(http)
                async with anyio.create_task_group() as group:
                    group.start_soon(until_killed, agent, http)
                    await grown(agent, 5)
                    await anyio.sleep(0.02)
                    process.kill()
    with started(*options(place.engine, place.proxy, tmp_path / "sessions.db")) as process:
        async with httpx2.AsyncClient(base_url=process.url, timeout=60) as http:
            await agent.check(http)
    sampled = [(turn.prompt_ids, turn.completion_ids) for turn in place.proxy.turns]
    places = [sampled.index((one.prompt, one.sampled)) for one in agent.received]
    assert places == sorted(places)
    assert len(agent.received) >= 16


async def until_killed(agent: Agent, http: httpx2.AsyncClient) -> None:
    with suppress(httpx2.RequestError):
        while True:
            await agent.turn(http)
