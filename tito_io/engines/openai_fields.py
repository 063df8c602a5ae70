"""What all engines that speak OpenAI's dialect are sent alike."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from tito_core import InputError, Message, Messages

from .protocol import Rendering, Sampling


def said(messages: Sequence[Message], reasoning: str | None = None) -> list[dict[str, Any]]:
    """Return messages as the wire has them: arguments are JSON text there, and never an object.

    `reasoning` is the one name by which the server knows a thought, where it drops the other.

    >>> call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    >>> told = said([{"role": "assistant", "reasoning": "hm", "tool_calls": [call]}], "reasoning_content")[0]
    >>> told["tool_calls"][0]["function"], told["reasoning_content"]
    ({'name': 'f', 'arguments': '{"a": 1}'}, 'hm')
    """
    found = list(Messages.of(list(messages)))  # copies, which may be changed
    for message in found:
        if reasoning is not None:
            _rename(message, reasoning)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), dict):
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return found


def _rename(message: dict[str, Any], name: str) -> None:
    """Give a thought its name."""
    other = {"reasoning": "reasoning_content", "reasoning_content": "reasoning"}[name]
    if message.get(name) is None and other in message:
        message[name] = message.pop(other)


def rendered(rendering: Rendering) -> dict[str, Any]:
    """Return what messages are rendered with; keys that say nothing are left out."""
    found = {"tools": list(rendering.tools), "chat_template_kwargs": dict(rendering.template_args)}
    return {name: value for name, value in found.items() if value}


def sampled(
    sampling: Sampling,
    max_tokens: int | None,
    owned: Collection[str],
    names: tuple[str, str] = ("max_tokens", "seed"),
) -> dict[str, Any]:
    """Return how to sample; routes have different names for the limit and the seed.

    Raises `InputError` where an extra is `owned`: sent by the adapter, and no one else's to choose.
    """
    wrong = sorted(owned & sampling.extra.keys())
    if wrong:
        raise InputError(
            f"Sampling.extra: {wrong[0]!r} is not an extra; it has a field of its own, or would part the ids "
            "from the answer"
        )
    if max_tokens is not None and max_tokens < 1:
        raise InputError(f"Sampling.max_tokens is {max_tokens}: a turn has an id or more; ask for at least 1")
    if type(sampling.n) is not int or sampling.n < 1:
        raise InputError(f"Sampling.n is {sampling.n}: ask for at least 1 turn")
    found = {
        names[0]: max_tokens,
        names[1]: sampling.seed,
        "temperature": sampling.temperature,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": list(sampling.stop_ids) or None,
        "n": sampling.n if sampling.n > 1 else None,
    }
    return {name: value for name, value in found.items() if value is not None}
