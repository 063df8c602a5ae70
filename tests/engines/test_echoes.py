"""Real engines need not repeat a prompt with every turn, and a turn is the same when they do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs
import httpx2
import orjson
import pytest

from tests.engines.server import Server
from tests.engines.talk import HELLO, PLAIN
from tito_core import Ids
from tito_io.engines.protocol import Delta, Reply, Sampling
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

IDS = re.compile(rb'"(prompt|input_ids|token_ids|prompt_token_ids|tokens)":\[')
ASIDE = re.compile(rb"tokenize|logit_bias")
"""What is asked of a vocabulary, and how large it is."""

Watched = Callable[[Delta], Any] | None


@attrs.define
class Overheard(httpx2.AsyncHTTPTransport):
    """A network that keeps what turns were asked with, and what came."""

    turns: list[tuple[bytes, bytes]] = attrs.field(factory=list)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if IDS.search(request.content) and not ASIDE.search(request.url.path.encode() + request.content):
            content = b"".join([piece async for piece in response.aiter_raw()])
            self.turns.append((request.content, content))
            headers = {"content-type": response.headers["content-type"]}
            response = httpx2.Response(response.status_code, content=content, headers=headers)
        return response


async def ignored(_: Delta) -> None:
    """Watch."""


def grown(family: Family) -> list[Ids]:
    """Return prompts that go on from one another, as a trajectory has them."""
    ids = Ids.of(family.ids(HELLO, add_generation_prompt=True)).packed()
    return [ids, ids.then((5, 6, 7)).packed(), ids.then((5, 6, 7)).packed().then((8, 9))]


async def turns(
    engine: Any, prompts: list[Ids], watch: Watched, *, anew: Callable[[], Any] | None
) -> list[Reply]:
    """Return a turn after each prompt; with `anew` each is the first of another client."""
    found = []
    for seed, ids in enumerate(prompts):
        one = anew() if anew else engine
        sampling = Sampling(max_tokens=24, temperature=1.0, seed=seed)
        found.append(await one.from_ids(ids, sampling, PLAIN, watch=watch))
        if anew:
            await one.aclose()
    return found


def said(replies: list[Reply]) -> list[Any]:
    """Return what turns say."""
    return [(one.completion_ids, one.text, one.finish_reason, one.message) for one in replies]


def repeated(overheard: Overheard, prompts: list[Ids]) -> list[bool]:
    """Return of each turn whether its prompt came back."""
    lists = [orjson.dumps(ids.tolist())[1:-1] for ids in prompts]
    asked = [(body, answer.replace(b" ", b"")) for body, answer in overheard.turns]
    return [ids in answer for ids, (_, answer) in zip(lists, asked, strict=True)]


@pytest.mark.parametrize("watch", [None, ignored], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", ["completions", "chat", "generate", "tokens"])
async def test_vllm_samples_the_same_without_repeating_the_prompt(
    vllm_server: Server, route: Any, watch: Watched
) -> None:
    prompts, overheard = grown(Family.load(vllm_server.family)), Overheard()
    engine = VLLM(vllm_server.base_url, route=route, transport=overheard)
    quiet = await turns(engine, prompts, watch, anew=None)
    loud = await turns(engine, prompts, watch, anew=lambda: VLLM(vllm_server.base_url, route=route))
    await engine.aclose()
    assert repeated(overheard, prompts) == [True, False, False]
    assert [one.logprobs for one in quiet] == [one.logprobs for one in loud]
    if route in ("completions", "generate"):  # elsewhere calls get new names each time
        assert said(quiet) == said(loud)
    assert [one.completion_ids for one in quiet] == [one.completion_ids for one in loud]
    assert [one.prompt_ids for one in quiet] == prompts


@pytest.mark.parametrize("watch", [None, ignored], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", ["generate", "chat"])
async def test_sglang_counts_a_prompt_that_it_does_not_repeat(
    sglang_server: Server, route: Any, watch: Watched
) -> None:
    prompts, overheard = grown(Family.load(sglang_server.family)), Overheard()
    async with SGLang(sglang_server.base_url, route=route, transport=overheard) as engine:
        quiet = await turns(engine, prompts, watch, anew=None)
    assert repeated(overheard, prompts) == [True, False, False]
    assert [one.prompt_ids for one in quiet] == prompts
    assert all(one.usage.prompt_tokens == len(ids) for one, ids in zip(quiet, prompts, strict=True))
