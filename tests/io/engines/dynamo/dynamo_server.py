"""A Dynamo of a few lines: it refuses what the real frontend refuses, and answers in the real one's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import httpx2
import orjson

from tito_io.engines.dynamo import CHAT, COMPLETIONS, Dynamo

PROMPT = (4, 5, 6)
RENDERED = (1, 2, 3)
"""What this server makes of any messages, the placeholder too."""
CARD = {"id": "m", "object": "model", "created": 1, "owned_by": "nvidia", "context_window": 50}

COMMON = frozenset(
    [
        *("model", "stream", "stream_options", "nvext", "temperature", "top_p", "top_k", "min_p"),
        *("seed", "stop", "stop_token_ids", "n", "user", "metadata", "frequency_penalty"),
        *("presence_penalty", "repetition_penalty", "logit_bias", "logprobs", "min_tokens"),
        *("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "cache_salt"),
        *("detokenize", "allowed_token_ids", "bad_words_token_ids", "logprob_token_ids"),
        *("return_tokens_as_token_ids", "guided_json", "guided_regex", "guided_choice"),
        *("guided_grammar", "guided_decoding_backend", "guided_whitespace_pattern", "max_tokens"),
        *("prompt_logprobs",),
    ]
)
KNOWN = {
    CHAT: COMMON
    | frozenset(
        [
            *("messages", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens"),
            *("top_logprobs", "response_format", "reasoning_effort", "service_tier", "store"),
            *("chat_template_kwargs", "chat_template_args", "add_generation_prompt"),
            *("continue_final_message", "thinking_token_budget", "mm_processor_kwargs"),
        ]
    ),
    COMPLETIONS: COMMON | frozenset(("prompt", "echo", "best_of", "suffix")),
}
"""The keys that the real frontend took, asked one by one."""
NVEXT = frozenset(
    [
        *("greed_sampling", "use_raw_prompt", "annotations", "backend_instance_id", "token_data"),
        *("max_thinking_tokens", "cache_salt", "extra_fields", "metadata_upload", "prefill_worker_id"),
        *("decode_worker_id", "dp_rank", "prefill_dp_rank", "agent_hints", "request_timestamp_ms"),
        *("routing_constraints", "router"),
    ]
)
"""The extensions that the real one lists when it refuses another."""
HINTS = frozenset(["priority", "strict_priority", "osl", "speculative_prefill", "latency_sensitivity"])

FAILED = {"message": "Service temporarily unavailable", "type": "service_unavailable", "code": 503}
ENDED = b"data: " + orjson.dumps({"error": FAILED}) + b"\n\n"
DONE = b"data: [DONE]\n\n"


def flat(status: int, message: str, **more: Any) -> httpx2.Response:
    """Return an error as Dynamo writes it."""
    return httpx2.Response(status, json={"message": message, "type": "Bad Request", "code": status, **more})


@attrs.frozen(kw_only=True)
class Turn:
    """A turn to answer with, and what is odd about it."""

    ids: tuple[int, ...] = (7, 8)
    logprobs: tuple[float | None, ...] | None = None
    """Those of the OpenAI answer; -0.5 an id where nothing else is said."""
    named: tuple[int, ...] | None = None
    """The ids that the log-probabilities name; the sampled ones where nothing else is said."""
    engine: Mapping[str, Any] | None = attrs.field(factory=dict)
    """What `engine_data` says otherwise; None where the worker's last chunk never came."""
    nvext: Mapping[str, Any] = attrs.field(factory=dict)
    """What `nvext` says otherwise; None for what it leaves out."""
    message: Mapping[str, Any] = attrs.field(factory=dict)
    text: str = "hi"
    spelled: str | None = None
    """What the sampled tokens spell, where that is not the text; the first spells all of it."""
    finish_reason: str | None = "stop"
    detailed: str | None = None
    stop_reason: int | str | None = None
    usage: tuple[int, int] | None = None
    drops_nvext: bool = False
    """A frontend that was told to, or whose other processor does so: the placeholder is prompted."""
    held: bool = False
    """Whether a parser holds every id back until the end."""

    def __call__(self, path: str, body: Mapping[str, Any]) -> httpx2.Response:
        """Answer a request."""
        whole = self.whole(path, body)
        if not body.get("stream"):
            return httpx2.Response(200, json=whole)
        return events(*map(chunk_bytes, self.chunks(path, whole)), DONE)

    def whole(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer in one piece."""
        prompt = self._prompt(body)
        told = self._told(body, prompt)
        prompt_count, count = self.usage or (len(prompt), len(self.ids))
        answer: dict[str, Any] = {
            "id": "chatcmpl-1" if path == CHAT else "cmpl-1",
            "choices": [self._choice(path, body)],
            "created": 1,
            "model": "m",
            "object": "chat.completion" if path == CHAT else "text_completion",
            "usage": {
                "prompt_tokens": prompt_count,
                "completion_tokens": count,
                "total_tokens": prompt_count + count,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        }
        return {**answer, "nvext": told} if told else answer

    def chunks(self, path: str, whole: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answer in pieces: an id each, the last with all that is known at the end."""
        bare = {name: whole[name] for name in ("id", "created", "model")}
        (choice,), told = whole["choices"], dict(whole.get("nvext", {}))
        ids = told.pop("completion_token_ids", [])
        cuts = [list(ids)] if self.held or not ids else [[index] for index in ids]
        pieces = [self._piece(path, choice, cuts, place) for place in range(len(cuts))]
        made = [
            {**bare, "choices": [piece], **({"nvext": {"completion_token_ids": cut}} if ids else {})}
            for piece, cut in zip(pieces, cuts, strict=True)
        ]
        if told:
            made[-1]["nvext"] = {**made[-1].get("nvext", {}), **told}
        return [*made, {**bare, "choices": [], "usage": whole["usage"]}]

    def _piece(
        self, path: str, choice: Mapping[str, Any], cuts: Sequence[Sequence[int]], place: int
    ) -> dict[str, Any]:
        first, last = place == 0, place == len(cuts) - 1
        begin = sum(map(len, cuts[:place]))
        end = begin + len(cuts[place])
        piece: dict[str, Any] = {"index": 0, "finish_reason": choice["finish_reason"] if last else None}
        if path == CHAT:
            said = {name: value for name, value in choice["message"].items() if value is not None}
            piece["delta"] = said if first else {}
            entries = (choice["logprobs"] or {}).get("content")
            piece["logprobs"] = {"content": entries[begin:end]} if entries else None
            return piece
        piece["text"] = choice["text"] if first else ""
        if "logprobs" in choice:
            piece["logprobs"] = {name: list(values[begin:end]) for name, values in choice["logprobs"].items()}
        return piece

    def _prompt(self, body: Mapping[str, Any]) -> Sequence[int]:
        if "prompt" in body:
            found: Sequence[int] = body["prompt"]
            return found
        data = None if self.drops_nvext else body.get("nvext", {}).get("token_data")
        return data or RENDERED

    def _told(self, body: Mapping[str, Any], prompt: Sequence[int]) -> dict[str, Any]:
        """Return what was asked for by `extra_fields`, and nothing else."""
        known: dict[str, Any] = {
            "completion_token_ids": list(self.ids),
            "prompt_token_ids": list(prompt),
            "stop_reason": self.stop_reason,
            "detailed_finish_reason": self.detailed,
        }
        if self.engine is not None:
            known["engine_data"] = {
                "prompt_token_ids": list(prompt),
                "kv_cache_hit": {"prompt_tokens": len(prompt), "reused_tokens": 0},
                "completion_token_ids": list(self.ids),
                "finished": True,
                **(
                    {"completion_logprobs": [-0.5] * len(self.ids)}
                    if body.get("logprobs") is not None
                    else {}
                ),
                **self.engine,
            }
        asked = () if self.drops_nvext else body.get("nvext", {}).get("extra_fields", ())
        found = {**known, **self.nvext}
        return {name: found[name] for name in asked if found.get(name) is not None}

    def _tokens(self) -> list[str]:
        spelled = self.text if self.spelled is None else self.spelled
        return [spelled, *[""] * len(self.ids)]

    def _choice(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        values = tuple([-0.5] * len(self.ids)) if self.logprobs is None else self.logprobs
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish_reason}
        if path == CHAT:
            message = {"content": self.text or None, "refusal": None, "role": "assistant", **self.message}
            entries = [
                {"token": text, "logprob": value, "token_id": index, "bytes": [120], "top_logprobs": []}
                for value, index, text in zip(values, self.named or self.ids, self._tokens(), strict=False)
            ]
            asked = body.get("logprobs") and entries
            return {**choice, "message": message, "logprobs": {"content": entries} if asked else None}
        said = {"tokens": ["x"] * len(values), "token_logprobs": list(values), "text_offset": []}
        return {**choice, "text": self.text, **({"logprobs": said} if "logprobs" in body else {})}


def chunk_bytes(chunk: Mapping[str, Any]) -> bytes:
    """Return a chunk as an event."""
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def events(*pieces: bytes) -> httpx2.Response:
    """Return an event stream."""
    return httpx2.Response(200, content=b"".join(pieces), headers={"content-type": "text/event-stream"})


Answer = Callable[[str, Mapping[str, Any]], httpx2.Response]


@attrs.define
class Mock:
    """Refuses as the real one does, else answers with what it was given; the requests so far are kept."""

    answer: Answer
    card: Mapping[str, Any] = attrs.field(factory=lambda: CARD)
    asked: list[tuple[str, Any]] = attrs.field(factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path == "/v1/models":
            return httpx2.Response(200, json={"object": "list", "data": [self.card]})
        if path not in KNOWN:
            return flat(404, f"Route not found: {request.method} {path}")
        body = orjson.loads(request.content)
        self.asked.append((path, body))
        return refused(path, body) or self.answer(path, body)

    @property
    def body(self) -> Any:
        """What was asked last."""
        return self.asked[-1][1]


def refused(path: str, body: Mapping[str, Any]) -> httpx2.Response | None:
    """Return the real frontend's refusal, where it has one."""
    nvext = body.get("nvext", {})
    unknown = sorted(body.keys() - KNOWN[path])
    if wrong := sorted(nvext.keys() - NVEXT) + sorted(nvext.get("agent_hints", {}).keys() - HINTS):
        return flat(
            400, f"Failed to deserialize the JSON body into the target type: unknown field `{wrong[0]}`"
        )
    if unknown:
        return flat(400, f"Validation: Unsupported parameter(s): `{unknown[0]}`")
    if path == CHAT and not body.get("messages"):
        return flat(
            400, "Validation: The 'messages' field cannot be empty. At least one message is required."
        )
    if any(message.get("content", "") is None for message in body.get("messages", ())):
        return flat(400, "Failed to deserialize the JSON body into the target type")
    if body.get("n", 1) != 1 and "completion_token_ids" in nvext.get("extra_fields", ()):
        return flat(400, "Validation: `nvext.extra_fields` requires exactly one generated choice")
    return _measured(path, body)


def _measured(path: str, body: Mapping[str, Any]) -> httpx2.Response | None:
    most, top = body.get("max_completion_tokens", body.get("max_tokens")), 5 if path == COMPLETIONS else 20
    asked = body.get("logprobs") if path == COMPLETIONS else body.get("top_logprobs")
    if most is not None and most < 1:
        return flat(400, "Validation: max_tokens must be at least 1")
    if (asked or 0) > top:
        return flat(400, f"Validation: logprobs must be at most {top}")
    ids = body.get("prompt") or body.get("nvext", {}).get("token_data") or RENDERED
    actual = len(ids) + (most or 1)
    if actual > CARD["context_window"]:  # type: ignore[operator]  # the card holds numbers and names
        details = {"type": "context_length", "limit": CARD["context_window"], "actual": actual}
        return flat(400, "Invalid request", details=details)
    return None


def mocked(
    answer: Answer | None = None, *, card: Mapping[str, Any] = CARD, **options: Any
) -> tuple[Dynamo, Mock]:
    """Return an engine that asks a mock, and the mock."""
    mock = Mock(answer or Turn(), card)
    return Dynamo("http://mock:8000/v1", transport=httpx2.MockTransport(mock), **options), mock
