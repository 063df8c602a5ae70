"""A trtllm-serve of a few lines: it refuses what the real server refuses, and answers in the real one's form.

Each rule names the function that has it in TensorRT-LLM's repository; paths are relative to `tensorrt_llm`.
Read at commit 0076e93 (serve/openai_protocol.py), 01bf192 (serve/postprocess_handlers.py) and a678b91
(executor/result.py). No release was run: its wheel needs a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import httpx2
import orjson

from tests.io.engines.scripted import END, MODEL, YES, Script
from tito_io.engines.tensorrt_llm import TensorRTLLM

FIELDS = frozenset(
    (
        *("add_special_tokens", "best_of", "conversation_params", "detokenize", "disaggregated_params"),
        *("early_stopping", "echo", "frequency_penalty", "ignore_eos", "include_stop_str_in_output"),
        *("length_penalty", "logit_bias", "logprobs", "lora_request", "max_tokens", "min_p", "min_tokens"),
        *("model", "n", "presence_penalty", "priority", "prompt", "prompt_ignore_length"),
        *("repetition_penalty", "response_format", "return_context_logits", "seed", "skip_special_tokens"),
        *("spaces_between_special_tokens", "stop", "stop_token_ids", "stream", "stream_options", "suffix"),
        *("temperature", "thinking_token_budget", "top_k", "top_p", "top_p_min", "truncate_prompt_tokens"),
        *("use_beam_search", "user"),
    )
)
"""The fields of a request (serve/openai_protocol.py, CompletionRequest; OpenAIBaseModel forbids others)."""


def refused(message: str, status: int = 400, kind: str = "BadRequestError") -> httpx2.Response:
    """Return an error, flat (serve/openai_server.py, create_error_response)."""
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return httpx2.Response(status, json=body)


@attrs.define(kw_only=True)
class Server:
    """The server.

    Attributes:
        scripts: What it samples: as many turns as are requested, at most.
        context: The most ids of prompt and completion (`max_seq_len`).
        returns_ids: Whether its completions have ids, which older ones do not.
        changed: Keys of a whole answer's choices that are changed.
        asked: The bodies of the requests to `/v1/completions`.
    """

    scripts: Sequence[Script] = (YES,)
    context: int = 200
    returns_ids: bool = True
    changed: Mapping[str, Any] = attrs.field(factory=dict)
    asked: list[dict[str, Any]] = attrs.field(factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        route = request.method, request.url.path
        if route == ("GET", "/v1/models"):  # serve/openai_protocol.py, ModelCard: no context length
            card = {"id": "m", "object": "model", "created": 1, "owned_by": "tensorrt_llm"}
            return httpx2.Response(200, json={"object": "list", "data": [card]})
        if route != ("POST", "/v1/completions"):
            return httpx2.Response(404, json={"detail": "Not Found"})
        body = orjson.loads(request.content)
        self.asked.append(body)
        return self._rejected(body) or self._sampled(body)

    def _rejected(self, body: dict[str, Any]) -> httpx2.Response | None:
        """Return what is wrong with a request; None where nothing is."""
        unknown = sorted(body.keys() - FIELDS)
        if unknown:
            return refused(f"[{{'type': 'extra_forbidden', 'loc': ('body', '{unknown[0]}')}}]")
        if body.get("stream_options") and not body.get("stream"):  # validate_stream_options
            return refused("Stream options can only be defined when stream is true.")
        room = self.context - len(body["prompt"])
        if room <= 0:  # executor/base_worker.py, _deduce_max_tokens
            return refused(
                f"`default_max_tokens` ({room}) must be greater than 0, `default_max_tokens` ({room}) = "
                f"max_seq_len ({self.context}) - `splited_prompt_len` ({len(body['prompt'])}) - "
                "`query_token_len` (0)"
            )
        if body.get("max_tokens") is not None and body["max_tokens"] <= 0:
            return refused(f"`max_tokens` ({body['max_tokens']}) must be greater than 0")
        return None

    def _sampled(self, body: dict[str, Any]) -> httpx2.Response:
        """Return turns, in one piece or as chunks."""
        most = min(body.get("max_tokens") or self.context, self.context - len(body["prompt"]))
        turns = [one.within(most) for one in self.scripts[: body.get("n", 1)]]
        if body.get("stream"):
            return self._stream(turns[0], body)
        choices = [self._choice(one, place, body) for place, one in enumerate(turns)]
        whole = [{**choice, **self.changed} for choice in choices]
        sampled = sum(len(self._kept(one, body)[0]) for one in turns)
        return httpx2.Response(
            200, json={**self._top(), "choices": whole, "usage": self._usage(sampled, body)}
        )

    def _kept(self, turn: Script, body: Mapping[str, Any]) -> tuple[Sequence[int], str, int | None]:
        """Return a turn's ids, its end and the stop that is named (executor/result.py, _handle_sequence).

        A stop id that was named is cut off, unless it is to be kept; an end of the model's own is not named.
        """
        last = turn.ids[-1] if turn.ids else None
        if turn.finish == "stop" and last in body.get("stop_token_ids", ()):
            kept = turn.ids if body.get("include_stop_str_in_output") else turn.ids[:-1]
            return kept, "stop", last
        return turn.ids, turn.finish if turn.finish != "stop" or last == END else "length", None

    def _choice(self, turn: Script, place: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a choice (serve/postprocess_handlers.py, completion_response_post_processor).

        Of `logprobs` 0 no log-probabilities come: the server looks whether it is true.
        """
        ids, finish, stop = self._kept(turn, body)
        texts = body.get("detokenize", True)
        return {
            "index": place,
            "text": MODEL.decode(ids) if texts else "",
            "token_ids": None if texts or not self.returns_ids else list(ids),
            "logprobs": self._logprobs(turn, ids) if body.get("logprobs") else None,
            "context_logits": None,
            "finish_reason": finish,
            "stop_reason": stop,
            "disaggregated_params": None,
            "avg_decoded_tokens_per_iter": 1.0,
        }

    def _logprobs(self, turn: Script, ids: Sequence[int], start: int = 0) -> dict[str, Any]:
        """Return log-probabilities (serve/postprocess_handlers.py, create_completion_logprobs)."""
        values = list(turn.logprobs[start : start + len(ids)])
        texts = [MODEL.decode([index]) for index in ids]
        top = [{text: value} for text, value in zip(texts, values, strict=True)]
        return {"text_offset": [0] * len(ids), "token_logprobs": values, "tokens": texts, "top_logprobs": top}

    def _usage(self, sampled: int, body: Mapping[str, Any]) -> dict[str, Any]:
        prompt = len(body["prompt"])
        counts = {"prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled}
        return {**counts, "prompt_tokens_details": {"cached_tokens": 3}}

    def _top(self) -> dict[str, Any]:
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": "m",
            "prompt_token_ids": None,
        }

    def _stream(self, turn: Script, body: Mapping[str, Any]) -> httpx2.Response:
        """Return chunks (completion_stream_post_processor): what is new, then the counts, then the mark."""
        whole = self._choice(turn, 0, body)
        ids = self._kept(turn, body)[0]
        events: list[Any] = []
        for place, index in enumerate(ids):
            end = place == len(ids) - 1
            ends = {name: whole[name] if end else None for name in ("finish_reason", "stop_reason")}
            logprobs = self._logprobs(turn, [index], place) if whole["logprobs"] else None
            piece = {**whole, "token_ids": whole["token_ids"] and [index], "logprobs": logprobs, **ends}
            events.append({**self._top(), "choices": [piece], "usage": None})
        events.append({**self._top(), "choices": [], "usage": self._usage(len(ids), body)})
        content = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, content=content + b"data: [DONE]\n\n", headers=headers)


def served(server: Server | None = None, **options: Any) -> tuple[TensorRTLLM, Server]:
    """Return an engine that asks a fake, and the fake."""
    server = server or Server()
    transport = httpx2.MockTransport(server)
    return TensorRTLLM("http://mock:8000", family=MODEL, transport=transport, **options), server
