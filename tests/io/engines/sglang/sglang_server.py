"""An SGLang of a few lines: answers of the real one's form, over a mock transport that keeps requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import httpx2
import orjson

from tito_io.engines.sglang import SGLang

PROMPT = (4, 5, 6)
VOCABULARY = 1000
TAG_IDS = {"<think>": 90, "</think>": 91, "<tool_call>": 92, "</tool_call>": 93, "\n": 10, "\n\n": 11}
"""What this server's vocabulary makes of the tags; other texts are their letters' numbers."""

CARD = {"id": "m", "object": "model", "owned_by": "sglang", "root": "m", "parent": None, "max_model_len": 50}
INFO = {"version": "0.5.23", "max_req_input_len": 44, "enable_deterministic_inference": True}


def triples(ids: Sequence[int], value: float = -0.5) -> list[list[Any]]:
    """Return log-probabilities as the engine's own route has them."""
    return [[value, index, None] for index in ids]


def generated(
    ids: Sequence[int] = (7, 8),
    *,
    finish: Mapping[str, Any] | None = None,
    prompt: Sequence[int] | None = PROMPT,
    text: str = "hi",
    **info: Any,
) -> dict[str, Any]:
    """Return an answer of `/generate`; `info` replaces or, where it is ..., removes a fact about it."""
    said = {
        "id": "r",
        "finish_reason": {"type": "stop", "matched": 8} if finish is None else dict(finish),
        "prompt_tokens": len(PROMPT if prompt is None else prompt),
        "weight_version": "default",
        "output_token_logprobs": triples(ids),
        "completion_tokens": len(ids),
        "cached_tokens": 2,
        "weight_versions": [{"version": "default", "start": 0, "end": len(ids)}] if ids else [],
        **info,
    }
    meta = {name: value for name, value in said.items() if value is not ...}
    echoed = {} if prompt is None else {"prompt_token_ids": list(prompt)}
    return {"text": text, "output_ids": list(ids), "meta_info": meta, **echoed}


def chatted(ids: Sequence[int] = (7, 8), *, prompt: Sequence[int] = PROMPT, **choice: Any) -> dict[str, Any]:
    """Return an answer of the chat route; `choice` replaces parts of its choice or, by ..., removes them."""
    said = {
        "index": 0,
        "message": {"role": "assistant", "content": "hi", "reasoning_content": None},
        "logprobs": {"content": [{"token": "x", "logprob": -0.5, "bytes": [120]} for _ in ids]},
        "finish_reason": "stop",
        "matched_stop": 8,
        "prompt_token_ids": list(prompt),
        "response_token_ids": list(ids),
        **choice,
    }
    counts = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "prompt_tokens_details": None}
    return {
        "id": "r",
        "model": "m",
        "choices": [{name: value for name, value in said.items() if value is not ...}],
        "usage": counts,
        "metadata": {"weight_versions": [{"version": "default", "start": 0, "end": len(ids)}]},
    }


def completed(ids: Sequence[int] = (7, 8), **choice: Any) -> dict[str, Any]:
    """Return an answer of the completions route."""
    body = chatted(ids)
    (said,) = body["choices"]
    del said["message"], said["response_token_ids"]
    said |= {"text": "hi", "token_ids": list(ids)}
    said["logprobs"] = {"token_logprobs": [-0.5] * len(ids), "tokens": ["x"] * len(ids), "text_offset": [-1]}
    body["choices"] = [{name: value for name, value in {**said, **choice}.items() if value is not ...}]
    return body


def stream(events: Iterable[Any], *, done: bool = True) -> httpx2.Response:
    """Return events as they are sent."""
    parts = [b"data: " + orjson.dumps(event) + b"\n\n" for event in events]
    content = b"".join(parts) + (b"data: [DONE]\n\n" if done else b"")
    return httpx2.Response(200, content=content, headers={"content-type": "text/event-stream; charset=utf-8"})


def refused(message: str, status: int = 400, kind: str = "BadRequestError") -> httpx2.Response:
    """Return an error as the OpenAI routes have it, flat."""
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return httpx2.Response(status, json=body)


def complained(message: str, status: int = 400) -> httpx2.Response:
    """Return an error as `/generate` has it."""
    return httpx2.Response(status, json={"error": {"message": message}})


@attrs.define
class Mock:
    """Answers by path, and the requests so far."""

    answers: dict[str, Any]
    """For each path a body, a response, or a function of the request's body."""
    asked: list[tuple[str, Any]] = attrs.field(factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body: Any = orjson.loads(request.content) if request.content else None
        path = request.url.path
        if path == "/generate" and "logit_bias" in body["sampling_params"]:
            path = "probe"
        self.asked.append((path, body))
        answer = self.answers.get(path, DEFAULTS.get(path))
        if callable(answer):
            answer = answer(body)
        if answer is None:
            return httpx2.Response(404, json={"detail": "Not Found"})
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(200, json=answer)

    def bodies(self, path: str) -> list[Any]:
        """Return what was asked at a path."""
        return [body for asked, body in self.asked if asked == path]


def _tokenize(body: Mapping[str, Any]) -> dict[str, Any]:
    ids = [TAG_IDS[body["prompt"]]] if body.get("prompt") in TAG_IDS else [1, 2, 3]
    return {"count": len(ids), "max_model_len": 50, "tokens": ids}


def _detokenize(body: Mapping[str, Any]) -> dict[str, Any]:
    """Leave special tokens out unless told not to, as the real one does; here the tags are special."""
    tags = {number: text for text, number in TAG_IDS.items()}
    hidden = tags if body.get("skip_special_tokens", True) else {}
    return {"text": "".join(tags.get(i) or chr(i) for i in body["tokens"] if i not in hidden)}


def _probe(body: Mapping[str, Any]) -> httpx2.Response:
    (index,) = body["sampling_params"]["logit_bias"]
    return complained(f"logit_bias must has keys in [0, {VOCABULARY - 1}], got {index}.")


Default = Callable[[Any], Any] | dict[str, Any]
DEFAULTS: dict[str, Default] = {
    "/v1/models": {"object": "list", "data": [CARD]},
    "/server_info": INFO,
    "/tokenize": _tokenize,
    "/detokenize": _detokenize,
    "probe": _probe,
}


def mocked(answers: Mapping[str, Any] | None = None, **options: Any) -> tuple[SGLang, Mock]:
    """Return an engine that asks a mock, and the mock."""
    mock = Mock(dict(answers or {}))
    return SGLang("http://mock:30000/v1", transport=httpx2.MockTransport(mock), **options), mock
