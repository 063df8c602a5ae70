"""tito behind real routers: a conversation stays on one worker, and a worker that dies costs one error.

Workers of SGLang's and vLLM's router are those of `router_worker.py`, which says what it knows from where.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.engines.conftest import asked_for
from tests.engines.dynamo import Deployment
from tests.engines.routers import Routed, kv_router, router
from tests.environment import Say
from tests.io.serve.gateway import client as gateway_client
from tests.io.serve.gateway import opened
from tito_core import Step
from tito_io.client.token_client import CompletedTurn, TokenClient
from tito_io.embedded import MODEL, family
from tito_io.engines.dynamo import Dynamo
from tito_io.engines.protocol import (
    Delta,
    EngineError,
    Rendering,
    Reply,
    Sampling,
    ServerError,
    UnreachableError,
    UnsupportedError,
)
from tito_io.engines.routing import digest_name
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family
from tito_io.serve.gateway import build_gateway
from tito_io.serve.stores import MemoryStore

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

KINDS = ("sglang", "vllm")
BLOCK = {"sglang": 1, "vllm": 16}
"""How many ids are cached together: a page of SGLang, a block of vLLM."""
GONE_SOON = ("--health-check-interval-secs=1", "--health-failure-threshold=1")
"""A worker that died is noticed within a second or two, and not within minutes."""
CONVERSATIONS, TURNS = 8, 3


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Return whose router it is."""
    name = str(request.param)
    asked_for(f"{name}-router")
    return name


@pytest.fixture(scope="module")
def routed(kind: str, tmp_path_factory: pytest.TempPathFactory, say: Say) -> Iterator[Routed]:
    """Lend a router with four workers, which keeps named conversations on one."""
    with router(kind, say, tmp_path_factory.mktemp(f"{kind}-router")) as found:
        yield found


@pytest.fixture(scope="module")
def kv(tmp_path_factory: pytest.TempPathFactory, say: Say) -> Iterator[Deployment]:
    """Lend Dynamo's KV router with four mockers."""
    asked_for("dynamo-kv")
    with kv_router(say, tmp_path_factory.mktemp("dynamo-kv")) as found:
        yield found


def engine_of(kind: str, base_url: str) -> SGLang | VLLM:
    """Return the engine behind a router; SGLang's needs the model's folder."""
    return SGLang(base_url, family=family()) if kind == "sglang" else VLLM(base_url)


async def converse(
    engine: SGLang | VLLM, prefix: str | None, *, conversations: int = CONVERSATIONS
) -> list[list[CompletedTurn]]:
    """Take turns of many conversations, all at once; return each one's turns."""
    client, taken = TokenClient(engine), [list[CompletedTurn]() for _ in range(conversations)]
    prompts: list[list[Any]] = [
        [{"role": "user", "content": f"What is behind door {n}?" * 3}] for n in range(conversations)
    ]

    async def take(number: int) -> None:
        steps = [turn.step for turn in taken[number]]
        name = None if prefix is None else f"{prefix}-{number}"
        turn = await client.turn(steps, prompts[number], sampling={"max_tokens": 24}, conversation=name)
        taken[number].append(turn)
        prompts[number] += [turn.message, {"role": "user", "content": "And behind the next one?"}]

    for _ in range(TURNS):
        async with anyio.create_task_group() as tasks:
            for number in range(conversations):
                tasks.start_soon(take, number)
    return taken


def places(routed: Routed, conversations: list[list[CompletedTurn]]) -> list[set[int]]:
    """Return which workers sampled each conversation."""
    by_request = {request: place for request, _, place in routed.sampled()}
    return [{by_request[str(turn.turn.reply.request_id)] for turn in turns} for turns in conversations]


async def test_a_named_conversation_stays_on_one_worker(kind: str, routed: Routed) -> None:
    async with engine_of(kind, routed.base_url) as engine:
        conversations = await converse(engine, f"{kind}-named")
    found = places(routed, conversations)
    assert {len(one) for one in found} == {1}
    assert len(set.union(*found)) > 1, "the workers share the conversations"
    for turns in conversations:
        for before, after in pairwise(turns):
            held = (len(before.step.ids) - 1) // BLOCK[kind] * BLOCK[kind]
            assert (after.turn.reply.usage.cached_tokens or 0) >= held, "the last id sampled is not computed"
            assert after.turn.route.name == "TITO"


async def test_each_request_is_sampled_once_under_the_id_that_its_reply_has(
    kind: str, routed: Routed
) -> None:
    async with engine_of(kind, routed.base_url) as engine:
        (turns,) = await converse(engine, f"{kind}-ids", conversations=1)
    counts = routed.by_request()
    assert [counts[str(turn.turn.reply.request_id)] for turn in turns] == [1] * TURNS


async def test_a_conversation_without_a_name_is_spread(kind: str, routed: Routed) -> None:
    """That the tests before this one could fail."""
    async with engine_of(kind, routed.base_url) as engine:
        conversations = await converse(engine, None)
    assert any(len(one) > 1 for one in places(routed, conversations))


async def test_a_session_of_a_gateway_stays_on_one_worker(kind: str, routed: Routed) -> None:
    engine = engine_of(kind, routed.base_url)
    gateway = build_gateway(engine, MemoryStore(), model=MODEL, family=family())
    async with gateway_client(gateway) as http:
        names = [await opened(http) for _ in range(4)]
        for name in names:
            prompt: list[Any] = [{"role": "user", "content": "What is behind the door?"}]
            for _ in range(TURNS):
                body = {"messages": prompt, "max_tokens": 16}
                answer = await http.post(f"/sessions/{name}/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                prompt += [answer.json()["choices"][0]["message"], {"role": "user", "content": "Go on."}]
        page = (await http.get(f"/sessions/{names[0]}/view")).text
    await engine.aclose()
    found, requests = defaultdict[str, set[int]](set), dict[str, str]()
    for request, name, place in routed.sampled():
        found[name].add(place)
        requests[request] = name
    assert [len(found[digest_name(name)]) for name in names] == [1] * 4
    shown = [request for request, name in requests.items() if name == digest_name(names[0])]
    assert len(shown) == TURNS
    assert all(f"request {one}" in page for one in shown)


async def test_sglangs_router_gets_ids_that_were_rendered_here(kind: str, routed: Routed) -> None:
    """It has no `/tokenize`, and drops the keys of a chat by which ids go in and come back."""
    if kind != "sglang":
        pytest.skip("only SGLang's router is so")
    messages = [{"role": "user", "content": "What is behind the door?"}]
    async with engine_of(kind, routed.base_url) as engine:
        reply = await engine.from_messages(messages, Rendering(), Sampling(max_tokens=4))
    assert list(reply.prompt_ids) == family().ids(messages, add_generation_prompt=True)
    for route in ("chat", "completions"):
        async with SGLang(routed.base_url, family=family(), route=route) as other:
            with pytest.raises(UnsupportedError, match="route='generate'"):
                await other.from_ids([5, 6], Sampling(max_tokens=4))


# A worker dies. Each has a router of its own, which starts in some seconds.


async def ignored(_: Delta) -> None:
    """Look at nothing."""


@pytest.mark.parametrize("watch", [None, ignored])
async def test_a_worker_that_dies_in_its_answer_costs_one_error(
    kind: str, watch: Any, tmp_path: Path, say: Say
) -> None:
    """The conversation goes on with another worker, by exactly its ids."""
    policy = {"sglang": "--policy=manual", "vllm": "--policy=consistent_hash"}[kind]
    with router(kind, say, tmp_path, policy, "--disable-retries", *GONE_SOON, workers=2) as routed:
        async with engine_of(kind, routed.base_url) as engine:
            client, steps = TokenClient(engine), list[Step]()
            prompt: list[Any] = [{"role": "user", "content": "What is behind the door?"}]
            options: dict[str, Any] = {"sampling": {"max_tokens": 24}, "conversation": "game-7"}
            first = await client.turn(steps, prompt, **options)
            steps.append(first.step)
            prompt += [first.message, {"role": "user", "content": "Go on."}]
            routed.marker.touch()
            with pytest.raises((ServerError, UnreachableError)) as caught:
                await client.turn(steps, prompt, watch=watch, **options)
            assert routed.by_request()[str(caught.value.request_id)] == 1
            assert client.counts.errors.total() == 1
            again = await retried(lambda: client.turn(steps, prompt, **options))
            assert again.turn.route.name == "TITO"
            assert again.step.prompt_ids.starts_with(first.step.ids)
            counts = routed.by_request()
            assert counts[str(again.turn.reply.request_id)] == 1
            assert counts.total() == 3, "the first turn, the one that was lost, and the one after it"


async def retried(take: Callable[[], Awaitable[CompletedTurn]]) -> CompletedTurn:
    """Take a turn once the router knows that its worker is gone; until then it samples nothing."""
    with anyio.fail_after(60):
        while True:
            try:
                return await take()
            except EngineError:
                await anyio.sleep(0.5)


async def test_a_router_that_retries_samples_a_turn_twice_and_one_of_them_is_kept(
    kind: str, tmp_path: Path, say: Say
) -> None:
    """Both retry by default: a status of 500 after the worker died is sent to the next one."""
    with router(kind, say, tmp_path, "--policy=round_robin", workers=2) as routed:
        engine = engine_of(kind, routed.base_url)
        gateway = build_gateway(engine, MemoryStore(), model=MODEL, family=family())
        async with gateway_client(gateway) as http:
            name = await opened(http)
            routed.marker.touch()
            body = {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 8}
            answer = await http.post(f"/sessions/{name}/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            async with gateway.sessions.using(name) as session:
                (commit,) = session.commits.values()
        await engine.aclose()
        assert routed.by_request() == {commit.origin.engine_request: 2}


async def test_a_stream_that_has_begun_is_repeated_by_no_router(kind: str, tmp_path: Path, say: Say) -> None:
    with router(kind, say, tmp_path, "--policy=round_robin", workers=2) as routed:
        async with engine_of(kind, routed.base_url) as engine:
            ids = family().ids([{"role": "user", "content": "Hi."}], add_generation_prompt=True)
            routed.marker.touch()
            with pytest.raises(UnreachableError) as caught:
                await engine.from_ids(ids, Sampling(max_tokens=24), watch=ignored)
        assert routed.by_request() == {str(caught.value.request_id): 1}


# Dynamo's KV router.


def names_of(workers: list[list[Reply]]) -> list[set[str | None]]:
    return [{reply.worker for reply in turns} for turns in workers]


async def mocked_turns(kv: Deployment, prefix: str | None, start: int) -> list[list[Reply]]:
    """Take turns of many conversations by ids, all at once; the first ids are those from `start` on."""
    taken = [list[Reply]() for _ in range(CONVERSATIONS)]
    async with Dynamo(kv.base_url, logprobs=False, route="completions") as engine:

        async def take(number: int) -> None:
            ids = [start + number] * 200
            if taken[number]:
                last = taken[number][-1]
                ids = [*last.prompt_ids, *last.completion_ids, *[40] * 70]
            name = None if prefix is None else f"{prefix}-{number}"
            taken[number].append(await engine.from_ids(ids, Sampling(max_tokens=8, conversation=name)))

        for _ in range(TURNS + 1):
            async with anyio.create_task_group() as tasks:
                for number in range(CONVERSATIONS):
                    tasks.start_soon(take, number)
    return taken


async def test_the_kv_router_keeps_a_named_session_and_says_where(kv: Deployment) -> None:
    turns = await mocked_turns(kv, "kv-named", 100)
    workers = names_of(turns)
    assert {len(one) for one in workers} == {1}
    assert None not in set.union(*workers)
    assert len(set.union(*workers)) > 1
    for replies in turns:
        for before, after in pairwise(replies):
            held = len(before.prompt_ids) // 64 * 64
            assert (after.usage.cached_tokens or 0) >= held, (
                "a mocker keeps blocks of 64 ids, of prompts alone"
            )


async def test_the_kv_router_moves_what_has_no_name(kv: Deployment) -> None:
    """By what it predicts to be cached, and by load: that the test before could fail."""
    turns = await mocked_turns(kv, None, 300)
    assert any(len(one) > 1 for one in names_of(turns))


async def test_a_session_whose_mocker_died_goes_on(tmp_path: Path, say: Say) -> None:
    asked_for("dynamo-kv")
    with kv_router(say, tmp_path / "kv", workers=2) as kv:
        folder = Family.load(kv.family)
        sampling = Sampling(max_tokens=8, conversation="game-7")
        async with Dynamo(kv.base_url, family=folder, logprobs=False) as engine:
            first = await engine.from_ids([5] * 100, sampling)
            kv.workers[0].kill()
            ids = [*first.prompt_ids, *first.completion_ids, 6]
            with anyio.fail_after(60):
                while True:
                    try:
                        later = await engine.from_ids(ids, sampling)
                        break
                    except EngineError:
                        await anyio.sleep(0.5)
        assert list(later.prompt_ids) == ids
