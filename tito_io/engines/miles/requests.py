"""Request bodies for a session. The server keeps the ids: keys that touch them are rejected here.

Miles silently drops what its templates do not take. So what it would drop is rejected here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import InputError, Message
from tito_core.message import is_multimodal
from tito_core.normalization.canonical import sole_text
from tito_io.engines.grammar import check_unconstrained
from tito_io.engines.openai_fields import rendering_keys, sampling_keys, wire_messages
from tito_io.engines.protocol import Rendering, Sampling, UnsupportedError

OWNED = frozenset(("input_ids", "logprob_start_len", "routed_experts_start_len"))
"""Keys that only the server sets: older ones overwrite a client's, later ones answer 400."""
FIELDS = frozenset(("max_tokens", "messages", "model", "n", "seed", "stop", "stop_token_ids", "stream"))
"""Keys that `Sampling.extra` may not hold: they have fields of their own."""
ID_KEYS = {"logprobs": True, "return_meta_info": True, "return_prompt_token_ids": True}
"""Makes a reply hold its ids. Older servers request this of the engine anyway; later ones pass on to the
client only what the client requested."""
RENAMED = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
"""Engines' names for sampling parameters, and the chat API's."""
DEFAULTS = frozenset(("temperature", "top_p", "top_k"))
"""Sampling parameters that a session keeps for requests without them."""


def request_kwargs(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters in `sampling` under the names of the chat API.

    Those that are None are left out. Where a parameter has both names, the chat API's counts.

    >>> request_kwargs({"max_new_tokens": 64, "temperature": 1.0, "top_p": None})
    {'temperature': 1.0, 'max_tokens': 64}
    """
    parameters = {
        name: value
        for name, value in sampling.items()
        if name not in RENAMED and name not in ("messages", "model")
    }
    for theirs, ours in RENAMED.items():
        if parameters.get(ours) is None and sampling.get(theirs) is not None:
            parameters[ours] = sampling[theirs]
    return {name: value for name, value in parameters.items() if value is not None}


def opening(sampling: Mapping[str, Any], *, evaluation: bool) -> dict[str, Any]:
    """Return the body that opens a session; older servers ignore it."""
    defaults = {name: sampling[name] for name in sorted(DEFAULTS) if sampling.get(name) is not None}
    return {**defaults, **({"evaluation": True} if evaluation else {})}


def chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat body as a session takes it.

    Raises:
        InputError: The server would not render this.
        UnsupportedError: The server cannot do this.
    """
    wrong = sorted(name for name in OWNED if body.get(name) is not None)
    if wrong:
        raise InputError(f"{wrong[0]}: the session's server sets it; leave it out")
    if body.get("n") not in (None, 1):
        raise UnsupportedError("n: a session records one turn a request; open a session for each")
    if body.get("stream"):
        raise UnsupportedError("stream: Miles streams a turn in one piece, without its ids; leave it out")
    return {"model": "default", **body, "messages": kept_messages(body.get("messages")), **ID_KEYS}


def sampled(
    model: str, messages: Sequence[Message], rendering: Rendering, sampling: Sampling
) -> dict[str, Any]:
    """Return the chat body that requests a turn."""
    check_unconstrained(sampling, "Miles", "its sessions do not say whether the engine behind them obeyed")
    wrong = sorted((FIELDS | OWNED | ID_KEYS.keys()) & sampling.extra.keys())
    if wrong:
        raise InputError(
            f"Sampling.extra: {wrong[0]!r} cannot be passed here: use its field of `Sampling`, or leave it "
            "to the session"
        )
    keys = sampling_keys(sampling, sampling.max_tokens, owned=(), logprobs_optional=True)
    body = {"model": model, "messages": list(messages), **rendering_keys(rendering)}
    return {**body, **keys, **sampling.extra}


def kept_messages(messages: Any) -> list[dict[str, Any]]:
    """Return messages as the server keeps and renders them.

    >>> kept_messages([{"role": "assistant", "content": [{"type": "text", "text": "hi"}], "reasoning": "hm"}])
    [{'role': 'assistant', 'content': 'hi', 'reasoning_content': 'hm'}]
    """
    copies = wire_messages(messages, "reasoning_content")
    if not copies:
        raise InputError("messages: the list is empty; a chat begins with at least one message")
    if is_multimodal(copies):
        raise UnsupportedError("messages: Miles' sessions carry no images, audio or files")
    for place, message in enumerate(copies):
        if message["role"] == "developer":
            raise InputError(
                f"messages[{place}]: Miles' templates drop developer messages; send it as system"
            )
        if "content" in message:
            message["content"] = sole_text(message["content"])
        if isinstance(message.get("content"), list):
            raise InputError(f"messages[{place}]: Miles' templates drop content parts; send one string")
    return copies
