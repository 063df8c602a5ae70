"""A route that answers ids and a message: vLLM 0.33's generate route with the output mode `derender`.

The answers are real ones, from `vllm_033.jsonl` in the folder that TITO_EXCHANGES names; without it, answers
of the same form.
"""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.recorded_exchanges import parameters, recorded
from tests.io.engines.recorded_images import medium
from tests.io.engines.vllm.vllm_server import mocked
from tito_core import InputError
from tito_io.engines.protocol import (
    Delta,
    InvalidReplyError,
    Rendering,
    RequestError,
    Sampling,
    UnsupportedError,
)
from tito_io.engines.vllm import CHAT, COMPLETIONS, GENERATE
from tito_io.engines.vllm.routes import Notice

pytestmark = pytest.mark.anyio

RECORDED = {one["name"]: one for one in recorded("vllm_033.jsonl")}
CARD = {"id": "tiny-vl", "max_model_len": 2048, "parent": None}
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
CALL = {"id": "c-1", "type": "function", "function": {"name": "search", "arguments": '{"q": "uto"}'}}


def entries(*values: float) -> dict[str, Any]:
    return {"content": [{"token": "x", "logprob": one, "bytes": [120], "top_logprobs": []} for one in values]}


def answer(**choice: Any) -> dict[str, Any]:
    """Return an answer in the form of the recorded ones."""
    whole = {
        "index": 0,
        "finish_reason": "tool_calls",
        "stop_reason": 9,
        "token_ids": [7, 8, 9],
        "weight_versions": [{"version": "default", "start": 0, "end": 3}],
        "message": {"role": "assistant", "content": None, "reasoning": "ok", "tool_calls": [CALL]},
        "logprobs": entries(-0.5, -0.25, -1.0),
        **choice,
    }
    usage = {"prompt_tokens": 2, "completion_tokens": len(whole["token_ids"] or ()), "total_tokens": 5}
    return {
        "request_id": "r",
        "model": "tiny-vl",
        "usage": usage,
        "prompt_token_ids": [1, 2],
        "output_mode": "derender",
        "mm_placeholders": None,
        "choices": [whole],
    }


def server(*answers: Any, version: str = "0.33.0") -> Any:
    given = [
        one if isinstance(one, httpx2.Response) else httpx2.Response(200, json=one)
        for one in answers or [answer()]
    ]
    known = {
        GENERATE: lambda *_: given.pop(0) if len(given) > 1 else given[0],
        "/version": {"version": version},
        "/v1/models": {"data": [CARD]},
    }
    return mocked(known, route="derender")


async def test_ids_and_the_servers_message_come_in_one_reply() -> None:
    engine, mock = server()
    reply = await engine.from_ids(
        [1, 2], Sampling(max_tokens=30), Rendering(tools=(TOOL,), template_args={"enable_thinking": True})
    )
    assert (reply.completion_ids, reply.logprobs) == ((7, 8, 9), (-0.5, -0.25, -1.0))
    assert (reply.finish_reason, reply.stop_reason) == ("tool_calls", 9)
    assert reply.message is not None
    assert reply.message["tool_calls"][0]["function"]["name"] == "search"
    assert [one.version for one in reply.weight_versions] == ["default"]
    (body,) = mock.bodies(GENERATE)
    assert (body["output_mode"], body["return_token_ids"], "stream" in body) == ("derender", True, False)
    assert body["parse_context"] == {
        "include_reasoning": True,
        "parallel_tool_calls": True,
        "tools": [TOOL],
        "tool_choice": "auto",
        "chat_template_kwargs": {"enable_thinking": True},
    }


async def test_without_tools_nothing_is_read_as_a_call() -> None:
    engine, mock = server(answer(finish_reason="stop", message={"role": "assistant", "content": "hi"}))
    reply = await engine.from_ids([1, 2], Sampling(max_tokens=30))
    assert reply.message == {"role": "assistant", "content": "hi"}
    assert mock.bodies(GENERATE)[0]["parse_context"].keys() == {"include_reasoning", "parallel_tool_calls"}


async def test_a_watched_turn_comes_whole() -> None:
    heard: list[Delta] = []

    async def watch(delta: Delta) -> None:
        heard.append(delta)

    engine, mock = server()
    reply = await engine.from_ids([1, 2], Sampling(max_tokens=30), watch=watch)
    assert [delta.ids for delta in heard] == [(7, 8, 9)]
    assert reply.notices == (Notice.WHOLE,)
    assert "stream" not in mock.bodies(GENERATE)[0]


async def test_a_turn_that_was_cut_after_its_call_is_cut() -> None:
    """The server answers `tool_calls` wherever it read a call."""
    done = answer(finish_reason="stop", stop_reason=None, message={"role": "assistant", "content": "hi"})
    engine, _ = server(done, answer(stop_reason=None, token_ids=[7, 8, 6]))
    await engine.from_ids([1, 2], Sampling(max_tokens=30))
    reply = await engine.from_ids([1, 2], Sampling(max_tokens=3))
    assert (reply.finish_reason, reply.truncated) == ("length", True)


async def test_images_go_beside_ids() -> None:
    seen = {
        **answer(),
        "prompt_token_ids": [5, 5, 2],
        "mm_placeholders": {"image": [{"offset": 0, "length": 2}]},
    }
    seen["usage"]["prompt_tokens"] = 3
    engine, mock = server(seen)
    reply = await engine.from_ids_with_media([5, 2], [medium("cat", 0, pad=5)], Sampling(max_tokens=30))
    assert (list(reply.prompt_ids), reply.media_ranges) == ([5, 5, 2], ((0, 2),))
    assert reply.message is not None
    (body,) = mock.bodies(GENERATE)
    assert body["output_mode"] == "derender"
    assert len(body["content_parts"]) == 1


@pytest.mark.parametrize("version", ["0.32.0", "0.9.2"])
async def test_an_older_server_is_refused_before_anything_is_sent(version: str) -> None:
    engine, mock = server(version=version)
    with pytest.raises(UnsupportedError, match=f"vLLM {version} makes no messages of ids"):
        await engine.from_ids([1, 2], Sampling(max_tokens=3))
    assert not mock.bodies(GENERATE)


async def test_a_closed_route_says_how_it_is_opened() -> None:
    error = {"error": {"message": "Scale-out endpoints are disabled", "type": "x", "code": 403}}
    engine, _ = server(httpx2.Response(403, json=error))
    with pytest.raises(UnsupportedError, match="--enable-scale-out"):
        await engine.from_ids([1, 2], Sampling(max_tokens=3))


async def test_hidden_reasoning_takes_the_ids_with_it() -> None:
    engine, mock = server(answer(token_ids=None, logprobs=None))
    with pytest.raises(InvalidReplyError, match="token_ids"):
        await engine.from_ids([1, 2], Sampling(max_tokens=3))
    for name in ("include_reasoning", "parse_context", "return_weight_versions"):
        with pytest.raises(InputError, match=name):
            await engine.from_ids([1, 2], Sampling(max_tokens=3, extra={name: False}))
    assert len(mock.bodies(GENERATE)) == 1


# The recorded exchanges.


def named(*names: str) -> list[Any]:
    """Return the exchanges of these names, as parameters."""
    return parameters(RECORDED[name] for name in names if name in RECORDED)


@pytest.mark.parametrize(
    "exchange",
    named(
        "generate_derender",
        "generate_derender_tool_call",
        "generate_derender_tool_call_no_reasoning_gate",
    ),
)
async def test_a_real_answer_is_read(exchange: dict[str, Any]) -> None:
    request, response = exchange["request"], exchange["response"]
    engine, mock = server(response)
    tools = tuple(request["parse_context"].get("tools") or ())
    reply = await engine.from_ids(request["token_ids"], Sampling(max_tokens=60), Rendering(tools=tools))
    (choice,) = response["choices"]
    assert list(reply.completion_ids) == choice["token_ids"]
    assert [one["logprob"] for one in choice["logprobs"]["content"]] == list(reply.logprobs or ())
    assert reply.message is not None
    assert reply.message.get("tool_calls") == (choice["message"].get("tool_calls") or None)
    assert reply.weight_versions[0].stop == len(reply.completion_ids)
    sent = mock.bodies(GENERATE)[0]["parse_context"]
    assert sent.keys() <= request["parse_context"].keys() | {"parallel_tool_calls", "include_reasoning"}


@pytest.mark.parametrize("exchange", named("generate_derender_reasoning_hidden"))
async def test_a_real_answer_without_ids_is_an_error(exchange: dict[str, Any]) -> None:
    engine, _ = server(exchange["response"])
    with pytest.raises(InvalidReplyError, match="token_ids"):
        await engine.from_ids(exchange["request"]["token_ids"], Sampling(max_tokens=6))


@pytest.mark.parametrize(
    "exchange",
    named(
        "generate_derender_without_context",
        "generate_derender_stream",
        "generate_derender_unknown_context_key",
    ),
)
async def test_a_real_refusal_is_the_requests_error(exchange: dict[str, Any]) -> None:
    engine, _ = server(httpx2.Response(exchange["status"], json=exchange["response"]))
    with pytest.raises(RequestError):
        await engine.from_ids(exchange["request"]["token_ids"], Sampling(max_tokens=6))


@pytest.mark.parametrize("exchange", named("completions_return_weight_versions"))
async def test_completions_tell_weight_versions(exchange: dict[str, Any]) -> None:
    request, response = exchange["request"], exchange["response"]
    known = {COMPLETIONS: response, "/v1/models": {"data": [CARD]}}
    engine, mock = mocked(known)
    reply = await engine.from_ids(request["prompt"], Sampling(max_tokens=3))
    assert [(one.version, one.start, one.stop) for one in reply.weight_versions] == [("default", 0, 3)]
    assert mock.bodies(COMPLETIONS)[0]["return_weight_versions"] is True


@pytest.mark.parametrize(
    "exchange", named("chat_return_weight_versions", "chat_return_weight_versions_stream")
)
async def test_chats_tell_weight_versions(exchange: dict[str, Any]) -> None:
    request, response = exchange["request"], exchange["response"]
    heard: list[Delta] = []

    async def watch(delta: Delta) -> None:
        heard.append(delta)

    streams = isinstance(response, str)
    kind = {"content-type": "text/event-stream"}
    served = httpx2.Response(200, content=response.encode(), headers=kind) if streams else response
    known = {CHAT: served, "/v1/models": {"data": [CARD]}, "/version": {"version": "0.33.0"}}
    engine, _ = mocked(known, route="chat")
    asking = engine.from_messages(
        request["messages"], Rendering(), Sampling(max_tokens=6), watch=watch if streams else None
    )
    if streams and not (request.get("stream_options") or {}).get("include_usage"):
        with pytest.raises(InvalidReplyError, match="usage"):  # it was not asked for, as the adapter does
            await asking
        return
    reply = await asking
    assert [(one.version, one.start, one.stop) for one in reply.weight_versions] == [("default", 0, 6)]
