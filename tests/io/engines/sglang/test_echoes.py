"""Prompts that need not come back from an SGLang, and what is checked all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.io.engines.scripted import Heard
from tests.io.engines.sglang.sglang_server import chatted, completed, generated, mocked, stream, triples
from tito_io.engines.protocol import InvalidReplyError, Rendering, Sampling
from tito_io.engines.sglang.requests import CHAT, COMPLETIONS, GENERATE

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
LONGER = (4, 5, 6, 7, 8, 9)
ECHO = ("return_prompt_token_ids", "return_input_ids_in_sglext")
Spoil = Callable[[dict[str, Any], bool], None]


def asks(body: Any) -> bool:
    """Return whether a request has its prompt come back."""
    return any(body.get(name) for name in ECHO)


def generate(spoil: Spoil | None = None) -> Any:
    """Return a `/generate` that repeats a prompt where it is asked to."""

    def answered(body: Any) -> Any:
        answer = generated(prompt=body["input_ids"])
        if not asks(body):
            del answer["prompt_token_ids"]
        if spoil is not None:
            spoil(answer, asks(body))
        return stream([answer]) if body.get("stream") else answer

    return answered


def chat(spoil: Spoil | None = None, *, tells: bool = True) -> Any:
    """Return a chat route that does; where it `tells`, ids stand beside their log-probabilities, too."""

    def answered(body: Any) -> Any:
        prompt = body.get("input_ids", [1, 2, 3])
        told = {"output_token_logprobs": triples((7, 8)), "completion_tokens": 2}
        answer = chatted(prompt=prompt, meta_info=told if body.get("return_meta_info") and tells else None)
        (choice,) = answer["choices"]
        if not (asks(body) or body.get("return_token_ids")):  # either key brings the prompt
            del choice["prompt_token_ids"]
        if not (body.get("return_token_ids") or body.get("stream")):
            del choice["response_token_ids"]
        if spoil is not None:
            spoil(answer, asks(body))
        return streamed(answer, prompt if asks(body) else None) if body.get("stream") else answer

    return answered


def streamed(answer: dict[str, Any], prompt: list[int] | None) -> httpx2.Response:
    """Return a chat in pieces; its ids come in one event at its end."""
    (choice,) = answer["choices"]
    piece = {name: choice[name] for name in ("index", "logprobs", "finish_reason", "matched_stop")}
    extra = {"output_ids": [choice["response_token_ids"]], **({"input_ids": prompt} if prompt else {})}
    bare = {"id": "r", "model": "m"}
    return stream(
        [
            {**bare, "choices": [{**piece, "delta": choice["message"]}]},
            {**bare, "choices": [], "sglext": extra},
            {**bare, "choices": [], "usage": answer["usage"]},
        ]
    )


PATHS = {"generate": GENERATE, "chat": CHAT}
SERVERS = {"generate": generate, "chat": chat}
ROUTES: Any = tuple(PATHS)


def engine_of(route: Any, spoil: Spoil | None = None) -> Any:
    """Return an engine at such a server, and its mock."""
    return mocked({PATHS[route]: SERVERS[route](spoil)}, route=route)


def echoes(mock: Any, route: str) -> list[bool]:
    """Return of each request whether it has its prompt come back."""
    return [asks(body) for body in mock.bodies(PATHS[route])]


async def test_a_chat_that_has_ids_in_lists_alone_repeats_every_prompt() -> None:
    engine, mock = mocked({CHAT: chat(tells=False)}, route="chat")
    for _ in range(2):
        assert (await engine.from_ids(LONGER, Sampling())).completion_ids == (7, 8)
    assert echoes(mock, "chat") == [True, True]


@pytest.mark.parametrize("route", ROUTES)
async def test_what_a_stream_proved_proves_nothing_of_a_turn_in_one_piece(route: str) -> None:
    engine, mock = engine_of(route)
    for watch in (Heard(), None, Heard(), None):
        assert (await engine.from_ids(LONGER, Sampling(), watch=watch)).completion_ids == (7, 8)
    assert echoes(mock, route) == [True, True, False, False]


async def test_the_completions_route_has_one_key_for_both() -> None:
    def answered(body: Any) -> Any:
        answer = completed(prompt_token_ids=body["prompt"])
        answer["usage"]["prompt_tokens"] = len(body["prompt"])
        return answer

    engine, mock = mocked({COMPLETIONS: answered}, route="completions")
    for _ in range(2):
        await engine.from_ids(LONGER, Sampling())
    assert [body["return_token_ids"] for body in mock.bodies(COMPLETIONS)] == [True, True]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_server_that_repeats_nothing_is_trusted_for_its_count_alone(route: str) -> None:
    """Before 0.5.13; a chat that repeats nothing is refused."""

    def spoil(answer: dict[str, Any], _: bool) -> None:
        answer.pop("prompt_token_ids", None)
        for choice in answer.get("choices", ()):
            choice.pop("prompt_token_ids", None)

    engine, mock = engine_of(route, spoil)
    for _ in range(2):
        if route == "chat":
            with pytest.raises(InvalidReplyError, match="`prompt_token_ids` is null or missing"):
                await engine.from_ids(LONGER, Sampling())
        else:
            await engine.from_ids(LONGER, Sampling())
    assert echoes(mock, route) == [True, True]


async def test_messages_have_their_ids_come_back_each_time() -> None:
    engine, mock = engine_of("chat")
    for _ in range(2):
        await engine.from_ids(LONGER, Sampling())
        assert (await engine.from_messages(HELLO, Rendering(), Sampling())).prompt_ids == (1, 2, 3)
    assert echoes(mock, "chat") == [True, True, False, True]
