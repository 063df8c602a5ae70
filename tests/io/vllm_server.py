"""A vLLM of a few lines: answers of the real one's form, over a mock transport that keeps what was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import httpx2
import orjson

from tito_io.engines.vllm import VLLM

PROMPT = (4, 5, 6)
TAG_IDS = {"<think>": 90, "</think>": 91, "<tool_call>": 92, "</tool_call>": 93, "\n": 10, "\n\n": 11}
"""What this server's vocabulary makes of the tags; other texts are their letters' numbers."""

CARD = {"id": "m", "object": "model", "owned_by": "vllm", "root": "m", "parent": None, "max_model_len": 50}

Answer = Callable[[httpx2.Request, Any], httpx2.Response]


def usage(prompt: int, completion: int) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    return {**counts, "prompt_tokens_details": None, "completion_tokens_details": None}


def chat_answer(
    ids: Sequence[int] = (7, 8),
    *,
    prompt: Sequence[int] = PROMPT,
    logprobs: Sequence[float | None] | None = None,
    finish_reason: str | None = "stop",
    stop_reason: object = None,
    **message: Any,
) -> dict[str, Any]:
    """Return an answer of the chat route, null keys and all."""
    values = [-0.5] * len(ids) if logprobs is None else logprobs
    entries = [{"token": "x", "logprob": value, "bytes": [120], "top_logprobs": []} for value in values]
    empty = {"refusal": None, "annotations": None, "audio": None, "function_call": None, "reasoning": None}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "hi", **empty, **message},
        "logprobs": {"content": entries},
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
        "token_ids": list(ids),
        "routed_experts": None,
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [choice],
        "usage": usage(len(prompt), len(ids)),
        "prompt_logprobs": None,
        "prompt_token_ids": list(prompt),
        "kv_transfer_params": None,
    }


def completion_answer(
    ids: Sequence[int] = (7, 8),
    *,
    prompt: Sequence[int] = PROMPT,
    text: str = "hi",
    logprobs: Sequence[float | None] | None = None,
    finish_reason: str | None = "stop",
    stop_reason: object = None,
) -> dict[str, Any]:
    """Return an answer of the completions route."""
    values = [-0.5] * len(ids) if logprobs is None else logprobs
    tokens = ["x"] * len(values)
    choice = {
        "index": 0,
        "text": text,
        "logprobs": {
            "text_offset": list(range(len(values))),
            "token_logprobs": list(values),
            "tokens": tokens,
            "top_logprobs": [{"x": value} for value in values],
        },
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
        "token_ids": list(ids),
        "prompt_logprobs": None,
        "prompt_token_ids": list(prompt),
    }
    counted = usage(len(prompt), len(ids))
    return {"id": "cmpl-1", "object": "text_completion", "model": "m", "choices": [choice], "usage": counted}


def refused(message: str, status: int = 400, kind: str = "BadRequestError", param: str | None = None) -> Any:
    """Return an error in vLLM's envelope."""
    body = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    return httpx2.Response(status, json=body)


@attrs.define
class Mock:
    """Answers by path, and the requests so far."""

    answers: dict[str, Any]
    """For each path a body, a response, or a function of the request and its body."""
    asked: list[tuple[str, Any]] = attrs.field(factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = orjson.loads(request.content) if request.content else None
        path = request.url.path
        self.asked.append((path, body))
        answer = self.answers.get(path) or DEFAULTS.get(path)
        if callable(answer):
            answer = answer(request, body)
        if answer is None:
            return httpx2.Response(404, json={"detail": "Not Found"})
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(200, json=answer)

    def bodies(self, path: str) -> list[Any]:
        """Return what was asked at a path."""
        return [body for asked, body in self.asked if asked == path]


def _tokenize(request: httpx2.Request, body: Mapping[str, Any]) -> httpx2.Response:
    assert request.method == "POST"
    assert body.get("add_special_tokens", False) is False
    ids = [TAG_IDS[body["prompt"]]] if body.get("prompt") in TAG_IDS else [1, 2, 3]
    return httpx2.Response(200, json={"count": len(ids), "max_model_len": 50, "tokens": ids})


def _detokenize(request: httpx2.Request, body: Mapping[str, Any]) -> httpx2.Response:
    assert request.method == "POST"
    return httpx2.Response(200, json={"prompt": "".join(map(spelled, body["tokens"]))})


def spelled(index: int) -> str:
    """Return the text of an id."""
    names = {number: text for text, number in TAG_IDS.items()}
    return names.get(index) or chr(index)


DEFAULTS: dict[str, Any] = {
    "/v1/models": {"object": "list", "data": [CARD]},
    "/version": {"version": "0.32.0"},
    "/tokenize": _tokenize,
    "/detokenize": _detokenize,
}


def mocked(answers: Mapping[str, Any] | None = None, **options: Any) -> tuple[VLLM, Mock]:
    """Return an engine that asks a mock, and the mock."""
    mock = Mock(dict(answers or {}))
    return VLLM("http://mock:8000/v1", transport=httpx2.MockTransport(mock), **options), mock
