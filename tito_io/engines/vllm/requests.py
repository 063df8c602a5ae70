"""Request bodies for vLLM, under vLLM's names for everything.

vLLM ignores keys that it does not know, so that it accepts a misspelt key. Hence the checks here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tito_core import Ids, InputError, Message
from tito_io.engines.constraint import Constraint
from tito_io.engines.http_engine import TurnAfterIds
from tito_io.engines.openai_fields import rendering_keys, sampling_keys, wire_messages
from tito_io.engines.protocol import Rendering, Sampling, UnsupportedError

REASONING = "reasoning"
"""The one key of reasoning that this server reads; it drops `reasoning_content` silently."""
OWNED = frozenset(
    (
        *("add_generation_prompt", "add_special_tokens", "best_of", "chat_template", "chat_template_kwargs"),
        *("content_parts", "continue_final_message", "detokenize", "echo", "features", "flat_logprobs"),
        *("include_reasoning", "kv_transfer_params", "logprob_token_ids", "logprobs"),
        *("max_completion_tokens", "max_tokens", "messages", "model", "n", "output_kind", "output_mode"),
        *("parse_context", "prompt", "prompt_embeds", "return_token_ids", "return_tokens_as_token_ids"),
        *("return_weight_versions", "sampling_params"),
        *("seed", "stop", "stop_token_ids", "stream", "stream_options", "suffix", "temperature", "token_ids"),
        *("tokens", "tools", "top_logprobs", "truncate_prompt_tokens", "use_beam_search"),
    )
)
"""Keys that `Sampling.extra` may not hold: the adapter sets them, or the answer would not match the ids.

Requesting alternatives changes the last digits of the sampled id's log-probability, so their number is
always the same. `features` and `content_parts` are media: servers expand their placeholders, so that they go
by `from_ids_with_media` alone.
"""

BESIDE = frozenset(
    (
        *("cache_salt", "ec_transfer_params", "priority", "reasoning_ended", "reasoning_parser_kwargs"),
        "request_id",
    )
)
"""Extra keys of the generate route at the top of its body."""
WITHIN = frozenset(
    (
        *("allowed_token_ids", "bad_words", "extra_args", "frequency_penalty", "ignore_eos"),
        *("include_stop_str_in_output", "logit_bias", "min_p", "min_tokens", "presence_penalty"),
        *("repetition_detection", "repetition_penalty", "routed_experts_prompt_start"),
        *("skip_reading_prefix_cache", "skip_special_tokens", "spaces_between_special_tokens"),
        *("structured_outputs", "thinking_token_budget", "top_k", "top_p", "watermarking"),
    )
)
"""Extra keys of the generate route inside `sampling_params`."""

PLACEHOLDER = ({"role": "user", "content": "."},)
"""The conversation of a request by ids on a route that demands messages and does not use them."""

WEIGHTS = {"return_weight_versions": True}
"""Asks which weights sampled which ids. Servers before 0.33 ignore the key; the generate route needs none."""

OWN_ERRORS = re.compile(
    r"default chat template is no longer allowed"
    r"|--trust-request-chat-template|chat template kwargs from request"
    r"|empty conversation|at least one prompt|multi.?modal|may be provided in one prompt|skip_tokenizer_init",
    re.IGNORECASE,
)
"""vLLM's own errors in the envelope in which it also sends what a chat template raises.

vLLM answers 400 to whatever a template raises, and names no parameter; most of its own errors name one or
have another type. What is in doubt is an error: an outage must never pass for "cannot be rendered".
"""


def chat(model: str, messages: Sequence[Message], rendering: Rendering, sampling: Sampling) -> dict[str, Any]:
    """Return the body that requests a turn after messages."""
    body = {"model": model, "messages": wire_messages(messages, REASONING), **rendering_keys(rendering)}
    asked = {**_logprobs(sampling, asked=True), "return_token_ids": True, **WEIGHTS}
    return {**body, **_sampling(sampling, sampling.max_tokens), **asked}


def native_constraint(constraint: Constraint) -> dict[str, Any]:
    """Return the chat route's own keys for a constraint; the server then chooses the form of calls.

    Raises:
        UnsupportedError: Only some of the tools may be called. The server's `tool_choice` takes one name or
            none (`ChatCompletionRequest` in `vllm/entrypoints/openai/chat_completion/protocol.py`).

    >>> native_constraint(Constraint(must_call=("f",)))
    {'tool_choice': {'type': 'function', 'function': {'name': 'f'}}}
    """
    if constraint.may_call or len(constraint.callable) > 1:
        raise UnsupportedError(
            "tool_choice: allowed_tools cannot be honoured for this model: its chat template writes calls in "
            "a form for which no grammar is known here, and vLLM takes one tool or all. Nothing was sent",
            parameter="sampling",
        )
    keys: dict[str, Any] = {"parallel_tool_calls": False} if constraint.one_call else {}
    if constraint.must_call is not None:
        named = constraint.must_call
        function = {"type": "function", "function": {"name": named[0]}} if named else "required"
        return {"tool_choice": function, **keys}
    if constraint.schema is not None:
        keys["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": constraint.schema},
        }
    return keys


def chat_after_ids(turn: TurnAfterIds, *, echo: bool) -> dict[str, Any]:
    """Return the body that requests a turn after ids on the chat route, where the server's parsers run.

    The key was made for handing a prompt from one server to another. Servers older than 0.27 ignore it, and
    then fail for lack of messages: hence the empty list.
    """
    return _chat(turn, {"messages": [], "kv_transfer_params": {"prompt_token_ids": turn.ids}}, echo=echo)


def chat_of_tokens(turn: TurnAfterIds, *, echo: bool) -> dict[str, Any]:
    """Return the body that requests a turn after ids on the route that prime-rl adds to vLLM.

    It renders the messages before it discards that, and templates fail on an empty list.
    """
    return _chat(turn, {"messages": list(PLACEHOLDER), "tokens": turn.ids}, echo=echo)


def _chat(turn: TurnAfterIds, prompt: dict[str, Any], *, echo: bool) -> dict[str, Any]:
    body = {"model": turn.model.name, **rendering_keys(turn.rendering or Rendering())}
    asked = _logprobs(turn.sampling, asked=True)
    ids = _id_keys(turn.sampling, echo=echo)
    return {**body, **asked, **_sampling(turn.sampling, turn.max_tokens), **prompt, **ids}


def completion(
    model: str, ids: Ids, sampling: Sampling, max_tokens: int | None, *, echo: bool
) -> dict[str, Any]:
    """Return the body that requests a turn after ids on the completions route.

    `max_tokens` always goes along: without it this route stops at 16. Special tokens stay in the text, since
    in some vocabularies the tags of tool calls are special.
    """
    body = {"skip_special_tokens": False, **_sampling(sampling, max_tokens)}
    fixed = {"model": model, "prompt": ids, "add_special_tokens": False, **_logprobs(sampling, asked=0)}
    return {**body, **fixed, **_id_keys(sampling, echo=echo)}


def generation(turn: TurnAfterIds, *, text: bool, echo: bool) -> dict[str, Any]:
    """Return the body that requests a turn after ids on the generate route.

    `max_tokens` always goes along: before 0.22 this route, too, stopped at 16. With `text` the server decodes
    as it samples; log-probabilities then come without ids.

    Raises:
        InputError: The route does not know a key of `Sampling.extra`, and would ignore it.
    """
    unknown = sorted(turn.sampling.extra.keys() - OWNED - BESIDE - WITHIN)
    if unknown:
        raise InputError(
            f"Sampling.extra: vLLM's generate route does not know {unknown[0]!r} and would ignore it: "
            "leave it out, or pass route='completions'"
        )
    parameters = {
        "skip_special_tokens": False,
        **_sampling(turn.sampling, turn.max_tokens),
        **_logprobs(turn.sampling, asked=0),
    }
    beside = {name: parameters.pop(name) for name in sorted(BESIDE & parameters.keys())}
    fixed = {"model": turn.model.name, "token_ids": turn.ids, "sampling_params": parameters}
    return {**beside, **fixed, "return_token_ids": echo, "output_mode": "text" if text else "tokens"}


def derendering(turn: TurnAfterIds) -> dict[str, Any]:
    """Return the body that requests a turn after ids and the message that the server's parsers make of it.

    A server with parsers demands `parse_context`. Reasoning must be included: without it the answer has
    neither ids nor log-probabilities.
    """
    rendering = turn.rendering or Rendering()
    context = {"include_reasoning": True, "parallel_tool_calls": True, **rendering_keys(rendering)}
    if rendering.tools:
        context["tool_choice"] = "auto"
    body = generation(turn, text=False, echo=True)
    return {**body, "output_mode": "derender", "parse_context": context}


def scoring(model: str, ids: Ids, top: int = 0) -> dict[str, Any]:
    """Return the body that requests the log-probability of each prompt id, and of the `top` most likely ones.

    One id is sampled beside.
    """
    fixed = {"model": model, "prompt": ids, "add_special_tokens": False, "max_tokens": 1}
    return {**fixed, "prompt_logprobs": top, "return_token_ids": True}


def _logprobs(sampling: Sampling, *, asked: bool | int) -> dict[str, bool | int]:
    """Return the key that requests log-probabilities of sampled ids, if they are wanted."""
    return {"logprobs": asked} if sampling.logprobs else {}


def _id_keys(sampling: Sampling, *, echo: bool) -> dict[str, bool]:
    """Return the keys that make sampled ids come back; with `echo`, the prompt's too.

    One key requests both. The other makes log-probabilities name the ids that they belong to.
    """
    named = {"return_tokens_as_token_ids": True} if sampling.logprobs else {}
    return {**named, **({"return_token_ids": True} if echo else {}), **WEIGHTS}


def _sampling(sampling: Sampling, max_tokens: int | None) -> dict[str, Any]:
    return {**sampling_keys(sampling, max_tokens, OWNED, logprobs_optional=True), **sampling.extra}
