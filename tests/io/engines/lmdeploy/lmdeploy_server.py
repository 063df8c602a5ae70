"""An LMDeploy of a few lines: it refuses what the real server refuses, and answers in the real one's form.

Each rule says where the real one has it, in LMDeploy 0.18.0: paths are relative to `lmdeploy/serve`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import httpx2
import orjson

from tests.io.engines.scripted import END, MODEL, YES, Script
from tito_io.engines.lmdeploy import LMDeploy

FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "session_id": int,
    "prompt": str,
    "input_ids": list,
    "return_logprob": bool,
    "top_logprobs_num": int,
    "logprob_start_len": int,
    "max_tokens": int,
    "stop": (str, list),
    "stop_token_ids": list,
    "stream": bool,
    "temperature": (float, int),
    "repetition_penalty": (float, int),
    "ignore_eos": bool,
    "top_p": (float, int),
    "top_k": int,
    "min_p": (float, int),
    "skip_special_tokens": bool,
    "spaces_between_special_tokens": bool,
    "include_stop_str_in_output": bool,
    "repetition_ngram_size": int,
    "repetition_ngram_threshold": int,
}
"""The fields of a request (openai/protocol.py:591). The real one ignores others; here they are an error,
since a key without effect is a fault of the adapter."""


def refused(status: int, message: str, kind: str = "invalid_request_error") -> httpx2.Response:
    """Return an error, flat (openai/errors.py:29)."""
    body = {"message": message, "type": kind, "code": status, "param": None, "object": "error"}
    return httpx2.Response(status, json=body)


@attrs.define(kw_only=True)
class Server:
    """The server.

    Attributes:
        script: What it samples.
        context: The most ids of prompt and completion (`session_len`).
        logprobs_mode: None where the engine was started without log-probabilities.
        models: The names that it lists; the first is the base model, others are adapters.
        key: The API key that it wants.
        dropped: Keys of an answer's `meta_info` that are changed.
        asked: The bodies of the requests to `/generate`.
    """

    script: Script = YES
    context: int = 200
    logprobs_mode: str | None = "raw_logprobs"
    models: Sequence[str] = ("m",)
    key: str | None = None
    dropped: Mapping[str, Any] = attrs.field(factory=dict)
    asked: list[dict[str, Any]] = attrs.field(factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        wanted = f"Bearer {self.key}"
        if self.key is not None and request.headers.get("authorization") != wanted:
            return refused(401, "Unauthorized.", "authentication_error")  # utils/server_utils.py:88
        route = request.method, request.url.path
        if route == ("GET", "/v1/models"):  # openai/endpoints/models.py: no context length
            cards = [{"id": name, "object": "model", "owned_by": "lmdeploy"} for name in self.models]
            return httpx2.Response(200, json={"object": "list", "data": cards})
        if route != ("POST", "/generate"):
            return httpx2.Response(404, json={"detail": "Not Found"})
        body = orjson.loads(request.content)
        self.asked.append(body)
        return self._rejected(request, body) or self._sampled(body)

    def _rejected(self, request: httpx2.Request, body: dict[str, Any]) -> httpx2.Response | None:
        """Return what is wrong with a request; None where nothing is."""
        if request.headers["content-type"] != "application/json":  # utils/server_utils.py:28
            return refused(400, "Unsupported Media Type: Only 'application/json' is allowed")
        for name, value in body.items():  # openai/api_server.py:148
            if name not in FIELDS or not isinstance(value, FIELDS[name]):
                return refused(400, f"{name}: Input should be valid")
        wrong = next((message for holds, message in self._rules(body) if holds), None)
        return None if wrong is None else refused(400, wrong)

    def _rules(self, body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
        """Yield what the real one checks, with its words (openai/endpoints/generate.py:58)."""
        yield (
            body.get("return_logprob", False) and self.logprobs_mode is None,
            "return_logprob(True) requested but not enabled logprobs_mode in engine configuration.",
        )
        yield (
            ("prompt" in body) == ("input_ids" in body),
            "You must specify exactly one of prompt or input_ids",
        )
        yield not body["input_ids"], "The input_ids must not be an empty list"
        yield body["max_tokens"] <= 0, f"The max_tokens {body['max_tokens']!r} must be a positive integer."
        top_p, temperature = body.get("top_p", 1), body.get("temperature", 1)
        yield not 0 < top_p <= 1, f"The top_p {top_p!r} must be in (0, 1]."
        yield not 0 <= temperature <= 2, f"The temperature {temperature!r} must be in [0, 2]"
        length = len(body["input_ids"])
        yield (  # core/async_engine.py:552
            length >= self.context,
            f"Input length ({length}) must be smaller than the model context length ({self.context}).",
        )

    def _sampled(self, body: dict[str, Any]) -> httpx2.Response:
        """Return a turn, in one piece or as events."""
        prompt = body["input_ids"]
        # pytorch/engine/engine.py:469: more than fits is cut to what fits
        turn = self.script.within(min(body["max_tokens"], self.context - len(prompt)))
        ids, finish = turn.ids, turn.finish
        # core/async_engine.py:408: named stop ids replace those of the chat template
        stops = set(body.get("stop_token_ids") or (END,))
        if finish == "stop" and ids[-1] not in stops:
            finish = "length"
        if finish == "stop" and not body.get("include_stop_str_in_output"):  # core/async_engine.py:766
            ids = ids[:-1]
        pieces = [self._answer(prompt, ids, place, 1, None, body) for place in range(len(ids))]
        if finish == "stop" and len(ids) == len(turn.ids):
            pieces[-1] = self._answer(prompt, ids, len(ids) - 1, 1, finish, body)
        else:
            pieces.append(self._answer(prompt, ids, len(ids), 0, finish, body))
        if not body.get("stream"):
            return httpx2.Response(200, json=self._answer(prompt, ids, 0, len(ids), finish, body))
        return self._stream(pieces)

    def _answer(
        self,
        prompt: Sequence[int],
        ids: Sequence[int],
        start: int,
        count: int,
        finish: str | None,
        body: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return some of a turn's ids (openai/protocol.py:627; openai/endpoints/generate.py:29)."""
        some = list(ids[start : start + count])
        pairs = [[self.script.logprobs[start + place], index] for place, index in enumerate(some)]
        meta = {
            "prompt_tokens": len(prompt),
            "completion_tokens": start + count,
            "finish_reason": {"type": finish} if finish else None,
            "output_token_logprobs": pairs if pairs and body.get("return_logprob") else None,
            "input_token_logprobs": None,
            "routed_experts": None,
            **self.dropped,
        }
        return {"text": MODEL.decode(some), "output_ids": some, "meta_info": meta}

    def _stream(self, pieces: Sequence[Mapping[str, Any]]) -> httpx2.Response:
        """Return events: each has what is new (openai/endpoints/generate.py:228)."""
        content = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in pieces)
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, content=content + b"data: [DONE]\n\n", headers=headers)


def served(server: Server | None = None, **options: Any) -> tuple[LMDeploy, Server]:
    """Return an engine that asks a fake, and the fake."""
    server = server or Server()
    transport = httpx2.MockTransport(server)
    return LMDeploy("http://mock:23333/v1", family=MODEL, transport=transport, **options), server
