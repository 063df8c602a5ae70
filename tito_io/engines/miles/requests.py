"""What a session is asked. The server owns the ids; who sends it keys that touch them is told before it is.

Miles drops what its templates do not take, without an error. So what would be dropped is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import InputError, Message, Messages
from tito_core.message import is_multimodal
from tito_core.normalization.canonical import sole_text
from tito_io.engines.protocol import Rendering, Sampling, UnsupportedError

OWNED = frozenset(("input_ids", "logprob_start_len", "routed_experts_start_len"))
"""Keys that only the server sets: older ones overwrite a client's, later ones answer 400."""
SAID = frozenset(("max_tokens", "messages", "model", "n", "seed", "stop", "stop_token_ids", "stream"))
"""Keys that `Sampling.extra` may not hold: they have fields of their own."""
ASKED = {"logprobs": True, "return_meta_info": True, "return_prompt_token_ids": True}
"""What makes a reply carry its ids. Older servers ask the engine for it anyway; later ones pass on to the
client only what the client asked for."""
RENAMED = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
"""An engine's names for sampling parameters, and the chat API's."""
DEFAULTS = frozenset(("temperature", "top_p", "top_k"))
"""Sampling parameters that a session keeps for requests without them."""


def request_kwargs(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return sampling parameters under the names of the chat API.

    Parameters that are None say nothing, and a name that is given both ways is taken as the chat API's.

    >>> request_kwargs({"max_new_tokens": 64, "temperature": 1.0, "top_p": None})
    {'temperature': 1.0, 'max_tokens': 64}
    """
    said = {name: value for name, value in sampling.items() if name not in RENAMED and name not in _MANAGED}
    for theirs, ours in RENAMED.items():
        if said.get(ours) is None and sampling.get(theirs) is not None:
            said[ours] = sampling[theirs]
    return {name: value for name, value in said.items() if value is not None}


_MANAGED = frozenset(("messages", "model"))


def opening(sampling: Mapping[str, Any], *, evaluation: bool) -> dict[str, Any]:
    """Return the body that opens a session; older servers ignore it."""
    kept = {name: sampling[name] for name in sorted(DEFAULTS) if sampling.get(name) is not None}
    return {**kept, **({"evaluation": True} if evaluation else {})}


def chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat body as a session takes it.

    Raises `InputError` for what the server would not render, `UnsupportedError` for what it cannot do.
    """
    wrong = sorted(name for name in OWNED if body.get(name) is not None)
    if wrong:
        raise InputError(f"{wrong[0]}: the session's server sets it; leave it out")
    if body.get("n") not in (None, 1):
        raise UnsupportedError("n: a session records one turn a request; open a session for each")
    if body.get("stream"):
        raise UnsupportedError("stream: Miles streams a turn in one piece, without its ids; leave it out")
    return {"model": "default", **body, "messages": said(body.get("messages")), **ASKED}


def sampled(
    model: str, messages: Sequence[Message], rendering: Rendering, sampling: Sampling
) -> dict[str, Any]:
    """Return the chat body that asks for a turn."""
    wrong = sorted((SAID | OWNED | ASKED.keys()) & sampling.extra.keys())
    if wrong:
        raise InputError(f"Sampling.extra: {wrong[0]!r} is no extra; a field or the session says it")
    found = {
        "tools": [dict(tool) for tool in rendering.tools],
        "chat_template_kwargs": dict(rendering.template_args),
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "stop": list(sampling.stop),
        "stop_token_ids": list(sampling.stop_ids),
        "n": None if sampling.n == 1 else sampling.n,
    }
    given = {name: value for name, value in found.items() if value not in (None, [], {})}
    return {"model": model, "messages": list(messages), **given, **sampling.extra}


def said(messages: Any) -> list[dict[str, Any]]:
    """Return messages as the server keeps and renders them.

    >>> said([{"role": "assistant", "content": [{"type": "text", "text": "hi"}], "reasoning": "hm"}])
    [{'role': 'assistant', 'content': 'hi', 'reasoning_content': 'hm'}]
    """
    copies = list(Messages.of(messages))
    if not copies:
        raise InputError("messages: there is none; a chat begins with at least one")
    if is_multimodal(copies):
        raise UnsupportedError("messages: Miles' sessions carry no images, audio or files")
    return [_said(message, f"messages[{place}]") for place, message in enumerate(copies)]


def _said(message: dict[str, Any], name: str) -> dict[str, Any]:
    """Return one message; `message` is a copy, which may be changed."""
    if message["role"] == "developer":
        raise InputError(f"{name}: Miles' templates drop developer messages; send it as system")
    if "content" in message:
        message["content"] = sole_text(message["content"])
    if isinstance(message.get("content"), list):
        raise InputError(f"{name}: Miles' templates drop content parts; send one string")
    if message.get("reasoning_content") is None and "reasoning" in message:
        message["reasoning_content"] = message.pop("reasoning")
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments"), dict):
            function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return message
