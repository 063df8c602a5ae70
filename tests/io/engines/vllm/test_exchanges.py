"""Recorded exchanges with a real vLLM, answered again to the adapter.

They lie outside the project: the environment variable TITO_EXCHANGES names the folder. Each line of
`vllm-*.jsonl` is one exchange, with its name, path, request, status and response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import orjson
import pytest

from tests.io.engines.recorded_exchanges import parameters, recorded
from tests.io.engines.vllm.vllm_server import mocked
from tito_io.engines.protocol import (
    Delta,
    EngineError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
)
from tito_io.engines.served_tokenizer import TOKENIZE
from tito_io.engines.vllm import CHAT, COMPLETIONS, GENERATE, TOKENS

pytestmark = pytest.mark.anyio

CARD = {"id": "m", "max_model_len": 2048, "parent": None}
ROUTES = {CHAT: "chat", COMPLETIONS: "completions", GENERATE: "generate", TOKENS: "tokens"}
ANSWERED, REFUSED = "answered", "refused"

OVERLONG_NAMES = ("chat.token_in.overlong", "overlong.prompt.", "overlong.chat.", "overlong.exact.comp")
UNASKED = (
    *("echo", "batch", "n2", "prompt_logprobs", "score", "stream", "max_tokens_0", "_field_ignored"),
    *("empty_prompt", "negative", "bad_json", "content_type"),
)
"""What the adapter never asks for, or not in that way."""
EMPTY = ("flags.processed_logprobs.eos_bias",)
"""With a reasoning parser, a turn of nothing but its end has neither content nor reasoning."""


EXCHANGES = recorded("vllm-*.jsonl")


def named(kind: str) -> list[Any]:
    """Return the exchanges of the adapter's routes that were answered, or refused."""
    return parameters(
        one
        for one in EXCHANGES
        if one["path"] in (CHAT, COMPLETIONS)
        and (one["status"] == 200) == (kind == ANSWERED)
        and not any(word in one["name"] for word in UNASKED)
    )


def _renders(exchange: Mapping[str, Any]) -> bool:
    return exchange["path"] == TOKENIZE and bool(exchange["request"].get("messages"))


async def asked_again(exchange: Mapping[str, Any]) -> Reply:
    """Ask for what the exchange asked, and be answered what it was."""
    request, path = exchange["request"], exchange["path"]
    response = httpx2.Response(exchange["status"], json=exchange["response"])
    ids = (request.get("kv_transfer_params") or {}).get("prompt_token_ids") or request.get("prompt")
    known = {path: response, "/v1/models": {"data": [CARD]}}
    engine, _ = mocked(known, route="chat" if path == CHAT else "completions")
    if ids is None:
        messages = request.get("messages") or [{"role": "user", "content": "hello"}]
        return await engine.from_messages(messages, Rendering(), Sampling())
    short = ids[:2000] if isinstance(ids, list) else [1]  # the adapter would not send what is overlong
    return await engine.from_ids(short, Sampling())


@pytest.mark.parametrize("exchange", named(ANSWERED))
async def test_an_answer_is_read_or_lacks_what_was_not_asked_for(exchange: dict[str, Any]) -> None:
    request, choice = exchange["request"], exchange["response"]["choices"][0]
    wanted = request.get("logprobs")
    whole = request.get("return_token_ids") and wanted is not None and wanted is not False
    if not whole:
        with pytest.raises(InvalidReplyError, match="null or missing"):
            await asked_again(exchange)
        return
    reply = await asked_again(exchange)
    assert list(reply.completion_ids) == choice["token_ids"]
    assert len(reply.logprobs or ()) == exchange["response"]["usage"]["completion_tokens"]
    assert reply.finish_reason == choice["finish_reason"]
    if "message" in choice:
        said = {"content": ""} if exchange["name"] in EMPTY else {}
        assert reply.message == {**choice["message"], **said}


@pytest.mark.parametrize("exchange", named(REFUSED))
async def test_a_refusal_is_the_error_that_it_amounts_to(exchange: dict[str, Any]) -> None:
    kind = OverlongError if exchange["name"].startswith(OVERLONG_NAMES) else RequestError
    with pytest.raises(EngineError) as caught:
        await asked_again(exchange)
    assert type(caught.value) is kind
    assert caught.value.answer is not None
    assert caught.value.answer.body == exchange["response"]


@pytest.mark.parametrize("exchange", parameters(one for one in EXCHANGES if _renders(one)))
async def test_a_rendering_is_the_recorded_ids(exchange: dict[str, Any]) -> None:
    engine, _ = mocked({TOKENIZE: httpx2.Response(exchange["status"], json=exchange["response"])})
    request = exchange["request"]
    asking = engine.render(request["messages"], Rendering(), add_generation_prompt=True)
    assert await asking == exchange["response"]["tokens"]


# Streams.


def _streams(exchange: Mapping[str, Any]) -> bool:
    return "stream" in exchange["name"] and exchange["path"] in ROUTES and exchange["status"] == 200


def _asked_for(exchange: Mapping[str, Any]) -> Sampling:
    """Return how the exchange's turns were sampled, as far as reading depends on it."""
    request = exchange["request"]
    count = (request.get("sampling_params") or request).get("n", 1)
    return Sampling(n=count, max_tokens=request.get("max_tokens"))


async def watched(exchange: Mapping[str, Any], heard: list[Delta]) -> Reply:
    """Ask for a stream, and be answered the events of the exchange."""

    async def watch(delta: Delta) -> None:
        heard.append(delta)

    request, path = exchange["request"], exchange["path"]
    content = b"".join(
        b"data: " + (event.encode() if isinstance(event, str) else orjson.dumps(event)) + b"\n\n"
        for event in exchange["response"]
    )
    response = httpx2.Response(200, content=content, headers={"content-type": "text/event-stream"})
    known = {path: response, "/v1/models": {"data": [{**CARD, "max_model_len": 4096}]}}
    engine, _ = mocked(known, route=ROUTES[path])
    ids = (request.get("kv_transfer_params") or {}).get("prompt_token_ids") or request.get("tokens")
    ids = ids or request.get("prompt") or request.get("token_ids")
    if ids is None:
        return await engine.from_messages(request["messages"], Rendering(), _asked_for(exchange), watch=watch)
    return await engine.from_ids(ids, _asked_for(exchange), watch=watch)


def _wants(exchange: Mapping[str, Any]) -> bool:
    """Tell whether the exchange asked for all that a reply is made of."""
    request = exchange["request"]
    wanted = (request.get("sampling_params") or request).get("logprobs")
    counted = (request.get("stream_options") or {}).get("include_usage")
    return bool(request.get("return_token_ids") and counted) and wanted is not None and wanted is not False


@pytest.mark.parametrize("exchange", parameters(one for one in EXCHANGES if _streams(one)))
async def test_a_stream_is_read_or_lacks_what_was_not_asked_for(exchange: dict[str, Any]) -> None:
    heard: list[Delta] = []
    if "overlong" in exchange["name"]:
        with pytest.raises(OverlongError):
            await watched(exchange, heard)
        return
    ids = [
        index
        for event in exchange["response"][:-1]
        for choice in event["choices"]
        for index in choice.get("token_ids") or ()
    ]
    if not _wants(exchange):
        with pytest.raises(InvalidReplyError, match="null or missing") as caught:
            await watched(exchange, heard)
        assert sum(len(delta.ids) for delta in heard) == len(ids)
        assert caught.value.partial is not None or not ids
        return
    reply = await watched(exchange, heard)
    assert [index for delta in heard for index in delta.ids] == ids == list(reply.completion_ids)
    assert tuple(value for delta in heard for value in delta.logprobs or ()) == reply.logprobs
    assert reply.usage.completion_tokens == len(ids)


def _generates(exchange: Mapping[str, Any]) -> bool:
    """Tell whether an exchange is a generated turn that came in one piece."""
    return (
        exchange["path"] == GENERATE and exchange["status"] == 200 and isinstance(exchange["response"], dict)
    )


@pytest.mark.parametrize("exchange", parameters(one for one in EXCHANGES if _generates(one)))
async def test_a_generated_turn_is_read_or_lacks_what_was_not_asked_for(exchange: dict[str, Any]) -> None:
    request = exchange["request"]
    known = {GENERATE: exchange["response"], "/v1/models": {"data": [{**CARD, "max_model_len": 4096}]}}
    engine, _ = mocked(known, route="generate")
    if request["sampling_params"].get("logprobs") is None:
        with pytest.raises(InvalidReplyError, match="null or missing"):
            await engine.from_ids(request["token_ids"], _asked_for(exchange))
        return
    reply = await engine.from_ids(request["token_ids"], _asked_for(exchange))
    (choice,) = exchange["response"]["choices"]
    assert list(reply.completion_ids) == choice["token_ids"]
    assert reply.prompt_ids == tuple(request["token_ids"])
    assert sum(span.stop - span.start for span in reply.weight_versions) == len(reply.completion_ids)
