"""What SGLang adds to a chat, and the session protocol with it: asked for in the body, told in the choices.

Its names are taken off before a dialect reads the body, and what they ask for is put into the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import attrs

from tito_io.engines.protocol import Reply

from .refusals import RequestRefused
from .session import Head

OWNED = frozenset(("input_ids", "routed_experts_start_len", "logprob_start_len"))
"""Keys that only a session server sets: later ones refuse them, older ones overwrite them."""
WISHES = frozenset(("return_meta_info", "return_prompt_token_ids"))
SET = frozenset(("no_stop_trim", "return_routed_experts", "return_indexer_topk"))
"""Keys that a session server sets for its engine whatever a client says: an adapter knows how to ask."""
DEFAULTS = ("temperature", "top_p", "top_k")
NOTHING_SAID = -1
"""What stands for no limit in `top_k`."""


@attrs.frozen
class Wishes:
    """What a chat asks to be told besides."""

    meta: bool = False
    prompt: bool = False


@attrs.frozen
class SessionWire:
    """A generation of the session protocol's wire."""

    later: bool = True
    """Whether an answer tells only what was asked for, and what only the server sets is refused."""

    def read(self, body: dict[str, Any], head: Head) -> tuple[dict[str, Any], Wishes]:
        """Return a chat's body without SGLang's keys, and what they wish; raises `RequestRefused`."""
        owned = sorted(name for name in OWNED if body.get(name) is not None)
        if owned and self.later:
            raise _bad(f"{owned[0]} is not accepted: the session's server sets it; leave it out")
        wishes = Wishes(
            meta=not self.later or bool(body.get("return_meta_info")),
            prompt=bool(body.get("return_prompt_token_ids")),
        )
        said = {name: one for name, one in body.items() if name not in OWNED | WISHES | SET}
        return _with_defaults(said, head), wishes


def _with_defaults(said: dict[str, Any], head: Head) -> dict[str, Any]:
    """Return a body with the session's own sampling arguments."""
    for name, value in head.defaults.items():
        if said.get(name) is None:
            said[name] = value
        elif name == "temperature" and said[name] != value and not head.evaluation:
            raise _bad(
                "temperature does not match the training session's; open the session with evaluation, or "
                "leave it out"
            )
    return said


def enriched(body: dict[str, Any], reply: Reply, wishes: Wishes) -> dict[str, Any]:
    """Return a whole chat answer with what was wished for in its choices."""
    for choice, one in zip(body["choices"], (reply, *reply.siblings), strict=True):
        if wishes.meta:
            choice["meta_info"] = meta_info(body["id"], one)
        if wishes.prompt:
            choice["prompt_token_ids"] = list(one.prompt_ids)
        if wishes.meta or wishes.prompt:
            choice["matched_stop"] = one.stop_reason
            choice["message"]["content"] = choice["message"].get("content") or ""
    return body


def meta_info(name: str, reply: Reply) -> dict[str, Any]:
    """Return what SGLang tells of a turn. Where a log-probability is missing, null stands for it."""
    logprobs = reply.logprobs or (None,) * len(reply.completion_ids)
    pairs = [[value, index, None] for value, index in zip(logprobs, reply.completion_ids, strict=True)]
    versions = {run.version for run in reply.weight_versions}
    return {
        "id": name,
        "finish_reason": _reason(reply),
        "prompt_tokens": len(reply.prompt_ids),
        "completion_tokens": len(reply.completion_ids),
        "cached_tokens": reply.usage.cached_tokens,
        "output_token_logprobs": pairs,
        **({"weight_version": versions.pop()} if len(versions) == 1 else {}),
    }


def _reason(reply: Reply) -> Mapping[str, Any]:
    kind = "stop" if reply.finish_reason == "tool_calls" else reply.finish_reason
    return {"type": kind, **({} if reply.stop_reason is None else {"matched": reply.stop_reason})}


def _bad(message: str) -> RequestRefused:
    return RequestRefused(HTTPStatus.BAD_REQUEST, "BadRequestError", message)
