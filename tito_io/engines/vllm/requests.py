"""What vLLM is asked: the bodies of requests, and the only place that knows vLLM's names for them.

vLLM ignores keys that it does not know, so a misspelt key is no error there. Hence the checks here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tito_core import Ids, InputError, Message
from tito_io.engines.openai_fields import rendered, said, sampled
from tito_io.engines.protocol import Rendering, Sampling

REASONING = "reasoning"
"""The one name of a thought that this server reads; the other is dropped without a word."""
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
        "return_tokens_as_token_ids",
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
    body = {"model": model, "messages": said(messages, REASONING), **rendered(rendering)}
    return {**body, **_chosen(sampling, sampling.max_tokens), "logprobs": True, "return_token_ids": True}


def chat_after_ids(
    model: str, ids: Ids, rendering: Rendering | None, sampling: Sampling, max_tokens: int, *, echo: bool
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the chat route, where the server's parsers run.

    The key was made for handing a prompt from one server to another. Servers older than 0.27 ignore it, and
    then fail for want of messages, which is what the empty list is for.
    """
    body = {"model": model, "messages": [], **rendered(rendering or Rendering())}
    given = {"kv_transfer_params": {"prompt_token_ids": ids}, "logprobs": True}
    return {**body, **_chosen(sampling, max_tokens), **given, **_named(echo=echo)}


def chat_of_tokens(
    model: str, ids: Ids, rendering: Rendering | None, sampling: Sampling, max_tokens: int, *, echo: bool
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the route that prime-rl adds to vLLM.

    It renders the messages before it throws that away, and templates fail on none at all.
    """
    body = {"model": model, "messages": list(PLACEHOLDER), **rendered(rendering or Rendering())}
    given = {"tokens": ids, "logprobs": True}
    return {**body, **_chosen(sampling, max_tokens), **given, **_named(echo=echo)}


def completion(model: str, ids: Ids, sampling: Sampling, max_tokens: int, *, echo: bool) -> dict[str, Any]:
    """Return the body that asks for a turn after ids.

    `max_tokens` always goes along: without it this route stops at 16. Special tokens stay in the text, since
    in some vocabularies the tags of tool calls are special.
    """
    body = {"skip_special_tokens": False, **_chosen(sampling, max_tokens)}
    fixed = {"model": model, "prompt": ids, "add_special_tokens": False, "logprobs": 0}
    return {**body, **fixed, **_named(echo=echo)}


def generation(
    model: str, ids: Ids, sampling: Sampling, max_tokens: int, *, text: bool, echo: bool
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the generate route.

    `max_tokens` always goes along: before 0.22 this route, too, stopped at 16. With `text` the server decodes
    as it samples; log-probabilities then come without ids. It ignores keys that it does not know, so those
    that nobody knows are refused here.
    """
    unknown = sorted(sampling.extra.keys() - OWNED - BESIDE - WITHIN)
    if unknown:
        raise InputError(f"Sampling.extra: the generate route knows no {unknown[0]!r}, and would ignore it")
    said = {"skip_special_tokens": False, **_chosen(sampling, max_tokens), "logprobs": 0}
    beside = {name: said.pop(name) for name in sorted(BESIDE & said.keys())}
    fixed = {"model": model, "token_ids": ids, "sampling_params": said, "return_token_ids": echo}
    return {**beside, **fixed, "output_mode": "text" if text else "tokens"}


def render(
    model: str, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
) -> dict[str, Any]:
    """Return the body that asks for the ids of messages."""
    body = {"model": model, "messages": said(messages, REASONING), **rendered(rendering)}
    return {**body, "add_generation_prompt": add_generation_prompt}


def _named(*, echo: bool) -> dict[str, bool]:
    """Return the keys that have sampled ids come back: with the prompt's, or without.

    One key asks for both. The other has log-probabilities name the ids that they belong to, and these alone.
    """
    return {"return_tokens_as_token_ids": True, **({"return_token_ids": True} if echo else {})}


def _chosen(sampling: Sampling, max_tokens: int | None) -> dict[str, Any]:
    """Return how to sample."""
    return {**sampled(sampling, max_tokens, OWNED), **sampling.extra}
