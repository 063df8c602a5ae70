"""Messages, tools and sampling parameters under the keys of OpenAI's API, for every engine that has it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from tito_core import InputError, Message, Messages

from .protocol import Rendering, Sampling


def wire_messages(messages: Sequence[Message], reasoning: str | None = None) -> list[dict[str, Any]]:
    """Return messages as requests have them: a tool call's arguments are JSON text, never an object.

    `reasoning` is the one key of reasoning that the server reads, where it drops the other.

    >>> call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    >>> message = {"role": "assistant", "reasoning": "hm", "tool_calls": [call]}
    >>> wired = wire_messages([message], "reasoning_content")[0]
    >>> wired["tool_calls"][0]["function"], wired["reasoning_content"]
    ({'name': 'f', 'arguments': '{"a": 1}'}, 'hm')
    """
    copies = list(Messages.of(messages))  # which may be changed
    other = {"reasoning": "reasoning_content", "reasoning_content": "reasoning"}.get(reasoning or "")
    for message in copies:
        if reasoning is not None and message.get(reasoning) is None and other in message:
            message[reasoning] = message.pop(other)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), dict):
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return copies


def rendering_keys(rendering: Rendering) -> dict[str, Any]:
    """Return tools and template arguments; empty ones are left out."""
    keys = {"tools": list(rendering.tools), "chat_template_kwargs": dict(rendering.template_args)}
    return {name: value for name, value in keys.items() if value}


def tokenize_body(
    model: str, messages: Sequence[Message], rendering: Rendering, reasoning: str, *, generation_prompt: bool
) -> dict[str, Any]:
    """Return the body that requests the ids of messages; `reasoning` as in `wire_messages`."""
    opening = rendering.opening if generation_prompt else None
    begun = [] if opening is None else [opening]
    # Servers refuse a generation prompt behind a message that is left open.
    ending = {"add_generation_prompt": generation_prompt and not begun}
    continued = {"continue_final_message": True} if begun else {}
    written = wire_messages([*messages, *begun], reasoning)
    return {"model": model, "messages": written, **rendering_keys(rendering), **ending, **continued}


def check_sampling(
    sampling: Sampling, max_tokens: int | None, owned: Collection[str], *, logprobs_optional: bool = False
) -> None:
    """Raise `InputError` where sampling parameters are invalid, or an extra is `owned` by the adapter.

    `logprobs_optional` says whether log-probabilities may be left out.
    """
    if not (sampling.logprobs or logprobs_optional):
        raise InputError(
            "Sampling.logprobs is False, and log-probabilities cannot be left out here: this engine, or this "
            "route of it, needs them for the ids, or always computes them; leave it True"
        )
    wrong = sorted(owned & sampling.extra.keys())
    if wrong:
        raise InputError(
            f"Sampling.extra: {wrong[0]!r} cannot be passed here: use its field of `Sampling`, or leave it "
            "out: the adapter sets it so that the answer matches the ids"
        )
    if max_tokens is not None and max_tokens < 1:
        raise InputError(f"Sampling.max_tokens is {max_tokens}: a turn has an id or more; ask for at least 1")
    if type(sampling.n) is not int or sampling.n < 1:
        raise InputError(f"Sampling.n is {sampling.n}: ask for at least 1 turn")


def sampling_keys(
    sampling: Sampling,
    max_tokens: int | None,
    owned: Collection[str],
    names: tuple[str, str] = ("max_tokens", "seed"),
    *,
    logprobs_optional: bool = False,
) -> dict[str, Any]:
    """Return sampling parameters without `Sampling.extra`; those that are None are left out.

    Args:
        sampling: The parameters.
        max_tokens: The most ids to ask for, in place of the caller's wish.
        owned: Keys that the adapter sets; `Sampling.extra` may not hold them.
        names: What the route calls the limit and the seed.
        logprobs_optional: Whether log-probabilities may be left out.

    Raises:
        InputError: A parameter is invalid, or an extra is owned.
    """
    check_sampling(sampling, max_tokens, owned, logprobs_optional=logprobs_optional)
    keys = {
        names[0]: max_tokens,
        names[1]: sampling.seed,
        "temperature": sampling.temperature,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": list(sampling.stop_ids) or None,
        "n": sampling.n if sampling.n > 1 else None,
    }
    return {name: value for name, value in keys.items() if value is not None}
