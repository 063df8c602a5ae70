"""Prompts that need not come back from a vLLM, and what is checked all the same."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.scripted import Heard
from tests.io.engines.vllm.vllm_server import (
    chat_answer,
    chunks,
    completion_answer,
    events,
    generate_answer,
    mocked,
    several,
)
from tito_core import Ids
from tito_io.engines.protocol import Delta, EngineError, InvalidReplyError, Rendering, Sampling
from tito_io.engines.vllm import CHAT, COMPLETIONS, GENERATE, TOKENS

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
PATHS = {"completions": COMPLETIONS, "chat": CHAT, "generate": GENERATE, "tokens": TOKENS}
ROUTES: Any = tuple(PATHS)
LONGER = (4, 5, 6, 7, 8, 9)
MADE: Any = {"completions": completion_answer, "generate": generate_answer}


def sent(body: Any) -> list[int]:
    """Return the ids of a request's prompt."""
    prompt = body.get("prompt") or body.get("token_ids") or body.get("tokens")
    found: list[int] = prompt or body["kv_transfer_params"]["prompt_token_ids"]
    return found


def named(choice: dict[str, Any]) -> None:
    """Write the tokens of log-probabilities as ids."""
    names = [f"token_id:{index}" for index in choice["token_ids"]]
    logprobs = choice["logprobs"]
    if "tokens" in logprobs:
        logprobs["tokens"] = names
    for entry, name in zip(logprobs.get("content") or (), names, strict=False):
        entry.update({} if "token_id" in entry else {"token": name})


def server(route: str, *, names: bool = True, spoil: Any = None, n: int = 1) -> Any:
    """Return a server that says what it is asked for and no more, as a real one does."""

    def answered(_: httpx2.Request, body: Any) -> httpx2.Response:
        turns = [MADE.get(route, chat_answer)((7, 8 + turn), prompt=sent(body)) for turn in range(n)]
        answer = several(*turns) if n > 1 else turns[0]
        for choice in answer["choices"]:
            if names and body.get("return_tokens_as_token_ids"):
                named(choice)
            if not body.get("return_token_ids"):
                choice.pop("prompt_token_ids", None)
                answer.pop("prompt_token_ids", None)
                if route != "generate":
                    choice["token_ids"] = None
        if spoil is not None:
            spoil(answer, body)
        if not body.get("stream"):
            return httpx2.Response(200, json=answer)
        whole = [{**choice, "token_ids": [7, 8 + place]} for place, choice in enumerate(answer["choices"])]
        pieces = chunks({**answer, "choices": whole})
        for piece in (piece for chunk in pieces for piece in chunk["choices"]):
            if not body.get("return_token_ids") and route != "generate":
                piece.pop("token_ids", None)
        return events(*pieces)

    return answered


def engine_of(route: Any, **options: Any) -> Any:
    """Return an engine at such a server, and its mock."""
    return mocked({PATHS[route]: server(route, **options)}, route=route)


def echoes(mock: Any, route: str) -> list[bool]:
    """Return of each request whether it has its prompt repeated."""
    return [bool(body.get("return_token_ids")) for body in mock.bodies(PATHS[route])]


@pytest.mark.parametrize("route", ROUTES)
async def test_several_turns_have_their_own_ids(route: str) -> None:
    engine, mock = engine_of(route, n=3)
    for _ in range(2):
        reply = await engine.from_ids(LONGER, Sampling(n=3))
        assert [one.completion_ids for one in (reply, *reply.siblings)] == [(7, 8), (7, 9), (7, 10)]
    assert echoes(mock, route) == [True, False]


@pytest.mark.parametrize("route", ["completions", "chat", "tokens"])
async def test_a_server_that_names_no_ids_repeats_every_prompt(route: str) -> None:
    engine, mock = engine_of(route, names=False)
    for _ in range(3):
        assert (await engine.from_ids(LONGER, Sampling())).completion_ids == (7, 8)
    assert echoes(mock, route) == [True, True, True]


async def test_a_generate_route_that_repeats_nothing_is_asked_each_time() -> None:
    """Before 0.30."""
    engine, mock = engine_of("generate", spoil=lambda answer, _: answer.pop("prompt_token_ids", None))
    for _ in range(2):
        assert (await engine.from_ids(LONGER, Sampling())).completion_ids == (7, 8)
    assert echoes(mock, "generate") == [True, True]


@pytest.mark.parametrize("route", ["completions", "chat", "tokens"])
@pytest.mark.parametrize("kept", [0, 1])
async def test_ids_that_are_not_all_named_are_an_error(route: str, kept: int) -> None:
    def spoil(answer: Any, body: Any) -> None:
        if not body.get("return_token_ids"):
            said = answer["choices"][0]["logprobs"]
            if "content" in said:
                said["content"][kept:] = [{**entry, "token": "x"} for entry in said["content"][kept:]]
            said |= {"tokens": said["tokens"][:kept] + ["x"] * (2 - kept)} if "tokens" in said else {}

    engine, mock = engine_of(route, spoil=spoil)
    await engine.from_ids(LONGER, Sampling())
    with pytest.raises(InvalidReplyError, match="`token_ids` is null or missing"):
        await engine.from_ids(LONGER, Sampling())
    await engine.from_ids(LONGER, Sampling())
    assert echoes(mock, route) == [True, False, True]


@pytest.mark.parametrize("route", ["completions", "chat", "tokens"])
async def test_fewer_names_than_the_engine_counts_are_an_error(route: str) -> None:
    def spoil(answer: Any, body: Any) -> None:
        if not body.get("return_token_ids"):
            said = answer["choices"][0]["logprobs"]
            for name in said:
                said[name] = said[name][:1]

    engine, _ = engine_of(route, spoil=spoil)
    await engine.from_ids(LONGER, Sampling())
    with pytest.raises(InvalidReplyError, match="2 counted sampled ids for 1 sampled ids"):
        await engine.from_ids(LONGER, Sampling())


async def test_a_turn_without_ids_proves_nothing() -> None:
    """There is nothing in it by which one could see that ids are named."""

    def spoil(answer: Any, _: Any) -> None:
        answer["choices"][0] |= {"token_ids": [], "logprobs": None}
        answer["usage"]["completion_tokens"] = 0

    engine, mock = engine_of("completions", spoil=spoil)
    for _ in range(2):
        assert (await engine.from_ids(LONGER, Sampling())).completion_ids == ()
    assert echoes(mock, "completions") == [True, True]


async def test_messages_have_their_ids_come_back_each_time() -> None:
    def rendered(_: httpx2.Request, body: Any) -> httpx2.Response:
        assert body["return_token_ids"] is True
        return httpx2.Response(200, json=chat_answer(prompt=(1, 2, 3)))

    engine, mock = mocked({COMPLETIONS: server("completions"), CHAT: rendered})
    for _ in range(3):
        await engine.from_ids(LONGER, Sampling())
        reply = await engine.from_messages(HELLO, Rendering(), Sampling())
        assert reply.prompt_ids == (1, 2, 3)
    assert echoes(mock, "completions") == [True, False, False]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("version", "quiet"), [("0.32.0", True), ("0.31.1", True), ("0.28.2", False), (None, False)]
)
async def test_a_stream_has_its_prompt_come_back_where_that_tells_its_ids(
    route: str, version: str | None, quiet: bool
) -> None:
    said = {"version": version} if version else httpx2.Response(404, json={"detail": "Not Found"})
    engine, mock = mocked({PATHS[route]: server(route), "/version": said}, route=route)
    told: list[int] = []

    async def watch(delta: Delta) -> None:
        told.extend(delta.ids)

    await engine.from_ids(LONGER, Sampling())
    reply = await engine.from_ids(LONGER, Sampling(), watch=watch)
    assert (reply.completion_ids, reply.logprobs, told) == ((7, 8), (-0.5, -0.5), [7, 8])
    assert (reply.prompt_ids, len(reply.prompt_ids)) == (LONGER, 6)
    whole = route in ("chat", "tokens") and version == "0.28.2"  # which does not stream them rightly
    assert echoes(mock, route) == [True, not (quiet or route == "generate")]
    assert bool(mock.bodies(PATHS[route])[1].get("stream")) is not whole


@pytest.mark.parametrize("route", ["completions", "chat"])
async def test_a_stream_that_breaks_keeps_the_ids_that_came(route: str) -> None:
    def broken(request: httpx2.Request, body: Any) -> httpx2.Response:
        answer: httpx2.Response = server(route)(request, body)
        if not body.get("stream"):
            return answer
        lines = answer.content.split(b"\n\n")
        kept = [line for line in lines if b"token_id:8" not in line and b"usage" not in line][:3]
        content = b"\n\n".join([line for line in kept if b"DONE" not in line]) + b"\n\n"
        return httpx2.Response(200, content=content, headers={"content-type": "text/event-stream"})

    engine, mock = mocked({PATHS[route]: broken}, route=route)
    await engine.from_ids(LONGER, Sampling())
    with pytest.raises(EngineError) as caught:
        await engine.from_ids(LONGER, Sampling(), watch=Heard())
    assert echoes(mock, route) == [True, False]
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == (7,)
    assert caught.value.partial.logprobs == (-0.5,)
    assert caught.value.partial.prompt_ids == LONGER


async def test_a_long_prompt_is_shared_with_the_reply() -> None:
    """Nothing is made of each id of a prompt once it has been sent before."""
    engine, _ = engine_of("completions")
    ids = Ids.of(range(20)).packed()
    await engine.from_ids(ids, Sampling())
    assert (await engine.from_ids(ids, Sampling())).prompt_ids is ids
