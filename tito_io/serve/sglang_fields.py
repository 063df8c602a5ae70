"""SGLang's additions to chats, which the session protocol has too: in the body and in the choices.

Their names are removed before a dialect reads the body; what they ask for is added to the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tito_io.dialects.fields import nearest
from tito_io.engines.protocol import Reply

from .refusals import bad_request
from .session import SessionHead

SERVER_FIELDS = frozenset(("input_ids", "routed_experts_start_len", "logprob_start_len"))
"""Fields that only a session server sets: later servers refuse them, older ones overwrite them."""
ANSWER_FIELDS = frozenset(("return_meta_info", "return_prompt_token_ids"))
ENGINE_FIELDS = frozenset(("no_stop_trim", "return_logprob", "return_routed_experts", "return_indexer_topk"))
"""Fields that a session server sets for its engine whatever a client sends; here the adapters do that."""
DEFAULTS = ("temperature", "top_p", "top_k")
RANGES: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: value >= 0, "a number that is not negative"),
    "top_p": (lambda value: 0 < value <= 1, "a number above 0, of at most 1"),
    "top_k": (lambda value: type(value) is int and value >= -1, "a whole number, 0 or -1 for no limit"),
}
"""What engines take, and in words; with another value every turn of the session would fail.

vLLM 0.32, `SamplingParams._verify_args` in `vllm/sampling_params.py`.
"""


@attrs.frozen
class AddedFields:
    """The fields of an answer besides the dialect's own.

    Attributes:
        meta_info: Whether each choice has SGLang's `meta_info`.
        prompt_ids: Whether each choice has the prompt's ids.
    """

    meta_info: bool = False
    prompt_ids: bool = False

    def add(self, body: dict[str, Any], reply: Reply) -> dict[str, Any]:
        """Return a whole chat answer with the fields in its choices."""
        if not (self.meta_info or self.prompt_ids):
            return body
        for choice, one in zip(body["choices"], (reply, *reply.siblings), strict=True):
            if self.meta_info:
                choice["meta_info"] = meta_info(body["id"], one)
            if self.prompt_ids:
                choice["prompt_token_ids"] = list(one.prompt_ids)
            choice["matched_stop"] = one.stop_reason
            choice["message"]["content"] = choice["message"].get("content") or ""
        return body


def read_chat(body: dict[str, Any], head: SessionHead, *, later: bool) -> tuple[dict[str, Any], AddedFields]:
    """Return a chat's body without SGLang's fields, and what they ask for; raises `RequestRefused`.

    In the `later` generation of the session protocol, an answer holds only the fields that were asked for,
    and fields that only the server sets are refused.
    """
    refused = sorted(name for name in SERVER_FIELDS if body.get(name) is not None)
    if refused and later:
        name = refused[0]
        raise bad_request(f"{name} is not accepted: the session's server sets it; leave it out", name)
    added = AddedFields(
        meta_info=not later or bool(body.get("return_meta_info")),
        prompt_ids=bool(body.get("return_prompt_token_ids")),
    )
    removed = SERVER_FIELDS | ANSWER_FIELDS | ENGINE_FIELDS
    return _with_defaults({k: v for k, v in body.items() if k not in removed}, head), added


def _with_defaults(body: dict[str, Any], head: SessionHead) -> dict[str, Any]:
    """Return a body with the session's own sampling arguments."""
    for name, value in head.defaults.items():
        if body.get(name) is None:
            body[name] = value
        elif name == "temperature" and body[name] != value and not head.evaluation:
            raise bad_request(
                "temperature does not match the training session's; open the session with evaluation, or "
                "leave it out",
                "temperature",
            )
    return body


def unread_fields(body: Mapping[str, Any], read: Sequence[str], what: str) -> list[str]:
    """Return the fields of a body that are not read; `what` is what those are that are.

    Raises `RequestRefused` for a name that is nearly one of theirs.
    """
    others = sorted(body.keys() - {*read})
    for name in others:
        meant = nearest(name, read)
        if meant is not None:
            raise bad_request(f"{name:.40} is no {what}: did you mean {meant!r}?", name)
    return others


def session_defaults(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of a session's chats; raises `RequestRefused` for one that no turn can have."""
    defaults = {name: body[name] for name in DEFAULTS if body.get(name) is not None}
    for name, value in defaults.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_request(f"{name} is {value!r:.40}: give a number", name)
        possible, bounds = RANGES[name]
        if not possible(value):
            raise bad_request(f"{name} is {value!r:.40}: give {bounds}", name)
    return defaults


def meta_info(name: str, reply: Reply) -> dict[str, Any]:
    """Return SGLang's `meta_info` of a turn; null stands for a missing log-probability."""
    logprobs = reply.logprobs or (None,) * len(reply.completion_ids)
    pairs = [[value, index, None] for value, index in zip(logprobs, reply.completion_ids, strict=True)]
    versions = {run.version for run in reply.weight_versions}
    kind = "stop" if reply.finish_reason == "tool_calls" else reply.finish_reason
    stop = {} if reply.stop_reason is None else {"matched": reply.stop_reason}
    return {
        "id": name,
        "finish_reason": {"type": kind, **stop},
        "prompt_tokens": len(reply.prompt_ids),
        "completion_tokens": len(reply.completion_ids),
        "cached_tokens": reply.usage.cached_tokens,
        "output_token_logprobs": pairs,
        **({"weight_version": versions.pop()} if len(versions) == 1 else {}),
    }
