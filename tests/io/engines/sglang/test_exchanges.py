"""Recorded exchanges with a real SGLang, answered again to the adapter.

They lie outside the project: the environment variable TITO_EXCHANGES names the folder. Each line of
`sglang-*.jsonl` is one exchange, with its name, path, request, status and response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import httpx2
import pytest

from tests.io.engines.recorded_exchanges import parameters, recorded
from tests.io.engines.sglang.sglang_server import complained, mocked, stream
from tito_io.engines.protocol import (
    EngineError,
    InvalidReplyError,
    ModelLimits,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
)
from tito_io.engines.served_tokenizer import TOKENIZE
from tito_io.engines.sglang import SGLang
from tito_io.engines.sglang.requests import CHAT, COMPLETIONS, GENERATE

pytestmark = pytest.mark.anyio

ROUTES = {GENERATE: "generate", CHAT: "chat", COMPLETIONS: "completions"}
DONE = "[DONE]"
UNASKED = ("batch", "logprob_start_len0", "text_and_ids")
"""What the adapter never asks for."""


EXCHANGES = [one for one in recorded("sglang-*.jsonl") if isinstance(one["status"], int)]
"""Those that were answered."""


def those(wanted: Callable[[dict[str, Any]], bool]) -> list[Any]:
    """Return the exchanges that are wanted, as parameters."""
    return parameters(one for one in EXCHANGES if wanted(one))


def _turn(exchange: Mapping[str, Any]) -> bool:
    return exchange["path"] in ROUTES and not any(word in exchange["name"] for word in UNASKED)


def _streamed(exchange: Mapping[str, Any]) -> bool:
    return isinstance(exchange["response"], list) and exchange["response"][-1] == DONE


def _failed(exchange: Mapping[str, Any]) -> bool:
    return exchange["status"] != 200 or (_streamed(exchange) and "error" in exchange["response"][0])


def _answered(exchange: dict[str, Any]) -> bool:
    return _turn(exchange) and not _failed(exchange)


def _refused(exchange: dict[str, Any]) -> bool:
    return _turn(exchange) and _failed(exchange)


def _rendered(exchange: dict[str, Any]) -> bool:
    return exchange["path"] == TOKENIZE and bool(exchange["request"].get("messages"))


def _response(exchange: Mapping[str, Any]) -> httpx2.Response:
    if _streamed(exchange):
        return stream(exchange["response"][:-1])
    return httpx2.Response(exchange["status"], json=exchange["response"])


async def asked_again(exchange: Mapping[str, Any]) -> Reply:
    """Ask for what the exchange asked, and be answered what it was."""
    request, path = exchange["request"], exchange["path"]
    ids = request.get("input_ids", request.get("prompt"))
    card = {"id": "m", "max_model_len": 9999, "parent": None}  # or what is overlong would not be sent
    engine, _ = mocked(
        {path: _response(exchange), "/v1/models": {"data": [card]}, "/server_info": {"version": "0.5.23"}},
        route=ROUTES[path],
        vocab_size=4105,
    )
    sampling = Sampling(n=request.get("sampling_params", request).get("n", 1))

    async def watch(_: object) -> None:
        pass

    watching = watch if request.get("stream") else None
    if path == CHAT and ids is None:
        messages = request.get("messages") or [{"role": "user", "content": "hello"}]
        return await engine.from_messages(messages, Rendering(), sampling, watch=watching)
    return await engine.from_ids(ids or [1], sampling, watch=watching)


def _turns(exchange: Mapping[str, Any]) -> list[Any]:
    """Return the turns of an answer in one piece."""
    body = exchange["response"]
    return body["choices"] if isinstance(body, dict) and "choices" in body else [body]


@pytest.mark.parametrize("exchange", those(_answered))
async def test_an_answer_is_read_or_lacks_what_was_not_asked_for(exchange: dict[str, Any]) -> None:
    request, path = exchange["request"], exchange["path"]
    named = path == GENERATE or request.get("return_token_ids") or request.get("return_meta_info")
    known = (
        request.get("return_logprob")
        if path == GENERATE
        else not (request.get("logprobs") is None or request["logprobs"] is False)
    )
    counted = not _streamed(exchange) or path == GENERATE
    if not (named and known and counted):
        with pytest.raises(InvalidReplyError, match="missing"):
            await asked_again(exchange)
        return
    reply = await asked_again(exchange)
    said = exchange["response"][-2] if _streamed(exchange) else _turns(exchange)[0]
    meta = said.get("meta_info") or {}
    ids = said.get("output_ids", said.get("response_token_ids", said.get("token_ids")))
    if ids is None:
        ids = [index for _, index, _ in meta["output_token_logprobs"]]
    reason = said.get("finish_reason") or meta["finish_reason"]
    assert list(reply.completion_ids) == ids
    assert len(reply.logprobs or ()) == len(ids)
    assert reply.finish_reason == (reason["type"] if isinstance(reason, dict) else reason)
    assert reply.message is not None


@pytest.mark.parametrize("exchange", those(_refused))
async def test_a_refusal_is_the_error_that_it_amounts_to(exchange: dict[str, Any]) -> None:
    long = any(word in exchange["name"] for word in ("overlong", "exact", "chat.sum"))
    with pytest.raises(EngineError) as caught:
        await asked_again(exchange)
    assert type(caught.value) is (OverlongError if long else RequestError)
    assert caught.value.answer is not None
    said = exchange["response"][0] if _streamed(exchange) else exchange["response"]
    assert caught.value.answer.body == said


@pytest.mark.parametrize("exchange", those(_rendered))
async def test_a_rendering_is_the_recorded_ids(exchange: dict[str, Any]) -> None:
    engine, _ = mocked({TOKENIZE: exchange["response"]})
    rendered = await engine.render(exchange["request"]["messages"], Rendering(), add_generation_prompt=True)
    assert rendered == exchange["response"]["tokens"]


def _named(exchanges: Iterable[dict[str, Any]], name: str) -> Any:
    return next(one["response"] for one in exchanges if one["name"] == name)


@pytest.mark.skipif(not EXCHANGES, reason="needs recorded exchanges: name their folder with TITO_EXCHANGES")
async def test_the_server_is_known_from_what_it_recorded() -> None:
    answers = {
        "/v1/models": _named(EXCHANGES, "sgl.models"),
        "/server_info": httpx2.Response(404, json={"detail": "Not Found"}),
        "/get_server_info": _named(EXCHANGES, "sgl.server_info"),
        "probe": complained("logit_bias must has keys in [0, 4104], got 2147483647."),
    }
    engine: SGLang = mocked(answers)[0]
    assert await engine.limits() == ModelLimits(max_model_len=2048, vocab_size=4105, max_prompt_len=2041)
    facts = await engine.facts()
    assert (facts.version, facts.max_prompt, facts.seeded) == ((0, 5, 23), 2041, False)
