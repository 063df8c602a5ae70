"""What vLLM is asked: the bodies of requests, and the only place that knows vLLM's names for them.

vLLM ignores keys that it does not know, so a misspelt key is no error there. Hence the checks here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import InputError, Message, Messages
from tito_io.engines.protocol import Rendering, Sampling

OWNED = frozenset(
    (
        "add_generation_prompt",
        "add_special_tokens",
        "best_of",
        "chat_template",
        "chat_template_kwargs",
        "content_parts",
        "continue_final_message",
        "detokenize",
        "echo",
        "features",
        "flat_logprobs",
        "include_reasoning",
        "kv_transfer_params",
        "logprob_token_ids",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "output_kind",
        "output_mode",
        "prompt",
        "prompt_embeds",
        "return_token_ids",
        "sampling_params",
        "seed",
        "stop",
        "stop_token_ids",
        "stream",
        "stream_options",
        "suffix",
        "temperature",
        "token_ids",
        "tokens",
        "tools",
        "top_logprobs",
        "truncate_prompt_tokens",
        "use_beam_search",
    )
)
"""Keys that `Sampling.extra` may not hold: they are said elsewhere, or would part the ids from the answer.

More log-probabilities than the sampled one's change that one's last digits, so their number is always the
same. `features` and `content_parts` are media, which never go by ids: servers expand their placeholders.
"""

BESIDE = frozenset(
    (
        "cache_salt",
        "priority",
        "reasoning_ended",
        "reasoning_parser_kwargs",
        "request_id",
        "ec_transfer_params",
    )
)
"""Extra keys of the generate route that stand beside `sampling_params`."""
WITHIN = frozenset(
    (
        "allowed_token_ids",
        "bad_words",
        "extra_args",
        "frequency_penalty",
        "ignore_eos",
        "include_stop_str_in_output",
        "logit_bias",
        "min_p",
        "min_tokens",
        "presence_penalty",
        "repetition_detection",
        "repetition_penalty",
        "routed_experts_prompt_start",
        "skip_reading_prefix_cache",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "structured_outputs",
        "thinking_token_budget",
        "top_k",
        "top_p",
        "watermarking",
    )
)
"""Extra keys of the generate route that stand in `sampling_params`."""

PLACEHOLDER = ({"role": "user", "content": "."},)
"""What stands for the conversation where a route wants messages beside the ids, and reads them or not."""


def chat(model: str, messages: Sequence[Message], rendering: Rendering, sampling: Sampling) -> dict[str, Any]:
    """Return the body that asks for a turn after messages."""
    body = {"model": model, "messages": _said(messages), **_rendered(rendering)}
    return {**body, **_sampled(sampling, sampling.max_tokens), "logprobs": True, "return_token_ids": True}


def chat_after_ids(
    model: str, ids: list[int], rendering: Rendering | None, sampling: Sampling, max_tokens: int
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the chat route, where the server's parsers run.

    The key was made for handing a prompt from one server to another. Servers older than 0.27 ignore it, and
    then fail for want of messages, which is what the empty list is for.
    """
    body = {"model": model, "messages": [], **_rendered(rendering or Rendering())}
    given = {"kv_transfer_params": {"prompt_token_ids": ids}, "logprobs": True, "return_token_ids": True}
    return {**body, **_sampled(sampling, max_tokens), **given}


def chat_of_tokens(
    model: str, ids: list[int], rendering: Rendering | None, sampling: Sampling, max_tokens: int
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the route that prime-rl adds to vLLM.

    It renders the messages before it throws that away, and templates fail on none at all.
    """
    body = {"model": model, "messages": list(PLACEHOLDER), **_rendered(rendering or Rendering())}
    given = {"tokens": ids, "logprobs": True, "return_token_ids": True}
    return {**body, **_sampled(sampling, max_tokens), **given}


def completion(model: str, ids: list[int], sampling: Sampling, max_tokens: int) -> dict[str, Any]:
    """Return the body that asks for a turn after ids.

    `max_tokens` always goes along: without it this route stops at 16. Special tokens stay in the text, since
    in some vocabularies the tags of tool calls are special.
    """
    body = {"skip_special_tokens": False, **_sampled(sampling, max_tokens)}
    fixed = {"model": model, "prompt": ids, "add_special_tokens": False}
    return {**body, **fixed, "logprobs": 0, "return_token_ids": True}


def generation(
    model: str, ids: list[int], sampling: Sampling, max_tokens: int, *, text: bool
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the generate route.

    `max_tokens` always goes along: before 0.22 this route, too, stopped at 16. With `text` the server decodes
    as it samples; log-probabilities then come without ids. It ignores keys that it does not know, so those
    that nobody knows are refused here.
    """
    unknown = sorted(sampling.extra.keys() - OWNED - BESIDE - WITHIN)
    if unknown:
        raise InputError(f"Sampling.extra: the generate route knows no {unknown[0]!r}, and would ignore it")
    said = {"skip_special_tokens": False, **_sampled(sampling, max_tokens), "logprobs": 0}
    beside = {name: said.pop(name) for name in sorted(BESIDE & said.keys())}
    fixed = {"model": model, "token_ids": ids, "sampling_params": said, "return_token_ids": True}
    return {**beside, **fixed, "output_mode": "text" if text else "tokens"}


def render(
    model: str, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
) -> dict[str, Any]:
    """Return the body that asks for the ids of messages."""
    body = {"model": model, "messages": _said(messages), **_rendered(rendering)}
    return {**body, "add_generation_prompt": add_generation_prompt}


def _said(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as the wire has them: arguments are JSON text there, and never an object.

    >>> call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    >>> _said([{"role": "assistant", "tool_calls": [call]}])[0]["tool_calls"][0]["function"]
    {'name': 'f', 'arguments': '{"a": 1}'}
    """
    said = list(Messages.of(list(messages)))  # copies, which may be changed
    for message in said:
        if message.get("reasoning") is None and "reasoning_content" in message:
            message["reasoning"] = message.pop("reasoning_content")  # /tokenize drops the old name
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), dict):
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return said


def _rendered(rendering: Rendering) -> dict[str, Any]:
    """Return what messages are rendered with; keys that say nothing are left out."""
    found = {"tools": list(rendering.tools), "chat_template_kwargs": dict(rendering.template_args)}
    return {name: value for name, value in found.items() if value}


def _sampled(sampling: Sampling, max_tokens: int | None) -> dict[str, Any]:
    """Return how to sample."""
    wrong = sorted(OWNED & sampling.extra.keys())
    if wrong:
        raise InputError(
            f"Sampling.extra: {wrong[0]!r} is not an extra; it has a field of its own, or would part the ids "
            "from the answer"
        )
    if max_tokens is not None and max_tokens < 1:
        raise InputError(f"Sampling.max_tokens is {max_tokens}: a turn has an id or more; ask for at least 1")
    if type(sampling.n) is not int or sampling.n < 1:
        raise InputError(f"Sampling.n is {sampling.n}: ask for at least 1 turn")
    return {**_given(sampling, max_tokens), **sampling.extra}


def _given(sampling: Sampling, max_tokens: int | None) -> Mapping[str, Any]:
    found = {
        "max_tokens": max_tokens,
        "n": sampling.n if sampling.n > 1 else None,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": list(sampling.stop_ids) or None,
    }
    return {name: value for name, value in found.items() if value is not None}
