"""A vLLM of a few lines: answers of the real one's form, over a mock transport that keeps what was asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
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


def generate_answer(
    ids: Sequence[int] = (7, 8),
    *,
    prompt: Sequence[int] = PROMPT,
    text: str | None = None,
    logprobs: Sequence[float | None] | None = None,
    finish_reason: str | None = "stop",
    stop_reason: object = None,
    kept: Sequence[Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Return an answer of the generate route: ids alone, or with `text` in the other of its modes.

    Without `--return-sampling-mask`, which `kept` is for, there is no mask, whatever a request has.
    """
    values = [-0.5] * len(ids) if logprobs is None else logprobs
    pairs = zip(ids, values, strict=False)
    named = [{"token_id": index, "logprob": value, "rank": 1} for index, value in pairs]
    spelled_out = [{"token": "x", "logprob": value, "bytes": [120], "top_logprobs": []} for value in values]
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
        "token_ids": list(ids),
        "routed_experts": None,
        "sampling_mask": None if kept is None else [list(one) for one in kept],
        "weight_versions": [{"version": "default", "start": 0, "end": len(ids)}],
        "logprobs": {"content": named if text is None else spelled_out},
    }
    return {
        "request_id": "generate-tokens-1",
        "model": "m",
        "usage": usage(len(prompt), len(ids)),
        "prompt_token_ids": list(prompt),
        "output_mode": "tokens" if text is None else "text",
        "choices": [choice if text is None else {**choice, "text": text}],
    }


def several(*answers: dict[str, Any]) -> dict[str, Any]:
    """Return one answer with the turns of several, to the same prompt."""
    counts = [answer["usage"] for answer in answers]
    counted = usage(counts[0]["prompt_tokens"], sum(count["completion_tokens"] for count in counts))
    choices = [{**answer["choices"][0], "index": place} for place, answer in enumerate(answers)]
    return {**answers[0], "choices": choices, "usage": counted}


def chunks(answer: Mapping[str, Any], size: int = 1) -> list[dict[str, Any]]:
    """Return the chunks that a real server sends for an answer, `size` ids in each; turns take turns."""
    top = {name: value for name, value in answer.items() if name not in ("choices", "usage")}
    common = {name: value for name, value in top.items() if name != "prompt_token_ids"}
    rows = [list(_pieces(choice, size)) for choice in answer["choices"]]
    found = [{**common, "choices": [piece]} for row in zip_longest(*rows) for piece in row if piece]
    if answer.get("object") == "chat.completion":
        begun = [
            {"index": choice["index"], "delta": {"role": "assistant", "content": ""}, "logprobs": None}
            for choice in answer["choices"]
        ]
        found = [{**top, "choices": [{**piece, "finish_reason": None}]} for piece in begun] + found
    elif "request_id" in answer:
        found[0] = {**top, **found[0]}
    return [*found, {**common, "choices": [], "usage": answer["usage"]}]


def _pieces(choice: Mapping[str, Any], size: int) -> Iterator[dict[str, Any]]:
    """Yield a choice in pieces: the text comes with the first ids, the end with the last."""
    ids = choice["token_ids"]
    ends = {name: choice.get(name) for name in ("finish_reason", "stop_reason")}
    whole = {name: choice[name] for name in ("routed_experts", "weight_versions") if name in choice}
    for start in range(0, len(ids), size) or (0,):
        first, last = start == 0, start + size >= len(ids)
        piece = {"index": choice["index"], "token_ids": ids[start : start + size], "finish_reason": None}
        piece["logprobs"] = _cut(choice["logprobs"], start, start + size)
        if choice.get("sampling_mask") is not None:
            piece["sampling_mask"] = choice["sampling_mask"][start : start + size]
        if "message" in choice:
            said = {name: value for name, value in choice["message"].items() if value is not None}
            calls = [{**call, "index": place} for place, call in enumerate(said.get("tool_calls") or ())]
            said = {**said, "tool_calls": calls} if calls else said
            piece["delta"] = {name: value for name, value in said.items() if name != "role"} if first else {}
        if "text" in choice:
            piece["text"] = choice["text"] if first else ""
        if "prompt_token_ids" in choice:
            piece["prompt_token_ids"] = choice["prompt_token_ids"] if first else None
        yield {**piece, **(ends if last else {}), **(whole if last else {})}


def _cut(logprobs: Mapping[str, Any] | None, start: int, stop: int) -> Any:
    return logprobs and {name: values[start:stop] for name, values in logprobs.items()}


def events(*found: Mapping[str, Any], done: bool = True) -> httpx2.Response:
    """Return a stream of these objects, and of the mark that ends it."""
    lines = [b"data: " + orjson.dumps(one) + b"\n\n" for one in found]
    content = b"".join(lines) + (b"data: [DONE]\n\n" if done else b"")
    return httpx2.Response(200, content=content, headers={"content-type": "text/event-stream; charset=utf-8"})


def serving(answer: Mapping[str, Any], size: int = 1) -> Answer:
    """Return what answers in one piece or as a stream, as it is asked to."""

    def answered(_: httpx2.Request, body: Any) -> httpx2.Response:
        if not body.get("stream"):
            return httpx2.Response(200, json=dict(answer))
        assert body["stream_options"] == {"include_usage": True}
        return events(*chunks(answer, size))

    return answered


def refused(message: str, status: int = 400, kind: str = "BadRequestError", param: str | None = None) -> Any:
    """Return an error in vLLM's envelope."""
    body = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    return httpx2.Response(status, json=body)


@attrs.define
class Mock:
    """Answers by path, and the requests so far."""

    answers: dict[str, Any]
    """For each path a body, a response, or a function of the request and its body; `markers` is for the
    question whether the vocabulary is a harmony model's."""
    asked: list[tuple[str, Any]] = attrs.field(factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body: Any = orjson.loads(request.content) if request.content else None
        path = request.url.path
        self.asked.append((path, body))
        asked_for = (
            "markers" if path == "/tokenize" and str(body.get("prompt")).startswith("<|start|>") else path
        )
        answer = self.answers.get(asked_for) or DEFAULTS.get(asked_for)
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
    """Return the text of an id; nothing for one that no tokenizer has, as `tokenizers` decodes it."""
    names = {number: text for text, number in TAG_IDS.items()}
    return names.get(index) or (chr(index) if index <= sys.maxunicode else "")


DEFAULTS: dict[str, Any] = {
    "/v1/models": {"object": "list", "data": [CARD]},
    "/version": {"version": "0.32.0"},
    "/tokenize": _tokenize,
    "markers": _tokenize,
    "/detokenize": _detokenize,
}


def mocked(answers: Mapping[str, Any] | None = None, **options: Any) -> tuple[VLLM, Mock]:
    """Return an engine that asks a mock, and the mock."""
    mock = Mock(dict(answers or {}))
    return VLLM("http://mock:8000/v1", transport=httpx2.MockTransport(mock), **options), mock
