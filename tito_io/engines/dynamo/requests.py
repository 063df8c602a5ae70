"""Request bodies for Dynamo: its routes, and its names for the keys of OpenAI and vLLM.

The frontend rejects keys that it does not know, and with `DYN_IGNORE_OPENAI_FE_UNSUPPORTED_FIELDS` drops them
silently. So a key is sent only where it is known to take effect, under its name there; every other one is an
`UnsupportedError` before anything is sent. `nvext` in `Sampling.extra` reaches what has no key here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs

from tito_core import InputError, Message
from tito_io.engines.grammar import check_unconstrained
from tito_io.engines.http_engine import TurnAfterIds
from tito_io.engines.openai_fields import rendering_keys, sampling_keys, wire_messages
from tito_io.engines.protocol import Rendering, Sampling, UnsupportedError

Route = Literal["chat", "completions"]
"""`chat`: ids beside one placeholder message; the server's parsers make the message. `completions`: ids as
the prompt, with neither parser nor grammar."""

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

Rule = Callable[[str, Any, Route], Mapping[str, Any]]
"""From a key, its value and the route to what the body has in its place."""

OURS = frozenset(("token_data", "extra_fields", "use_raw_prompt"))
"""Keys of `nvext` that only the adapter sets."""
MAX_TOKENS = {"chat": "max_completion_tokens", "completions": "max_tokens"}
"""What each route calls the limit."""
TOP = {"chat": 20, "completions": 5}
"""The most alternatives per id that a route returns."""


def _chat_only(name: str, value: Any, route: Route) -> Mapping[str, Any]:
    """Keep a key on the chat route, which alone knows it."""
    if route != "chat":
        raise UnsupportedError(
            f"Sampling.extra: {name!r} works on route='chat' only, not on {route!r}. Nothing was sent"
        )
    return {name: value}


def _logprobs(name: str, value: Any, route: Route) -> Mapping[str, Any]:
    """Write the number of alternatives as the route does: beside a flag, or as the number."""
    if type(value) is not int or not 0 <= value <= TOP[route]:
        raise InputError(f"{name} is {value!r}: Dynamo's {route} route gives 0 to {TOP[route]} alternatives")
    if route == "completions":
        return {"logprobs": value}
    return {"logprobs": True, "top_logprobs": value} if value else {"logprobs": True}


def _priority(name: str, value: Any, _: Route) -> Mapping[str, Any]:
    """Negate it: others serve the smallest number first, Dynamo the largest."""
    if type(value) is not int:
        raise InputError(
            f"Sampling.extra: {name} is {value!r}: pass an integer; the smallest is served first"
        )
    return {"nvext": {"agent_hints": {"priority": -value}}}


GUIDED = ("regex", "json", "choice", "grammar")


def _guided(name: str, value: Any, _: Route) -> Mapping[str, Any]:
    """Write `structured_outputs` as the key that each of its kinds has here."""
    if not isinstance(value, Mapping) or len(value) != 1 or not set(value) <= set(GUIDED):
        raise UnsupportedError(
            f"Sampling.extra: {name} is {value!r:.60}: Dynamo takes an object with exactly one of "
            f"{', '.join(GUIDED)}"
        )
    return {f"guided_{kind}": schema for kind, schema in value.items()}


def _ids(name: str, value: Any, _: Route) -> Mapping[str, Any]:
    """Drop it: ids always come back, `extra_fields` requests them."""
    if value is not True:
        raise InputError(f"Sampling.extra: {name} is {value!r}: a reply needs ids; leave it out")
    return {}


def _nvext(name: str, value: Any, _: Route) -> Mapping[str, Any]:
    """Keep Dynamo's own extensions, except those that set which ids go in and come out."""
    wrong = sorted(OURS & set(value)) if isinstance(value, Mapping) else ["not an object"]
    if wrong:
        raise InputError(f"Sampling.extra: {name}: {wrong[0]} cannot be passed here: the adapter sets it")
    return {name: value}


UNCHANGED = (
    *("allowed_token_ids", "bad_words_token_ids", "frequency_penalty", "guided_choice"),
    *("guided_decoding_backend", "guided_grammar", "guided_json", "guided_regex"),
    *("guided_whitespace_pattern", "ignore_eos", "include_stop_str_in_output", "logprob_token_ids"),
    *("metadata", "min_p", "min_tokens", "presence_penalty", "repetition_penalty"),
    *("return_tokens_as_token_ids", "seed", "skip_special_tokens", "stop", "stop_token_ids", "temperature"),
    *("top_k", "top_p", "user"),
)
CHAT_ONLY = (
    *("parallel_tool_calls", "reasoning_effort", "response_format", "service_tier", "store"),
    *("thinking_token_budget", "tool_choice"),
)
TABLE: Mapping[str, Rule] = {
    **dict.fromkeys(UNCHANGED, lambda name, value, _: {name: value}),
    **dict.fromkeys(CHAT_ONLY, _chat_only),
    "cache_salt": lambda name, value, _: {"nvext": {name: value}},
    "logprobs": _logprobs,
    "max_tokens": lambda _, value, route: {MAX_TOKENS[route]: value},
    "nvext": _nvext,
    "priority": _priority,
    "return_token_ids": _ids,
    "structured_outputs": _guided,
    "top_logprobs": _logprobs,
}
"""Every key that a request may have besides its prompt."""

REJECTED: Mapping[str, str] = {
    "logit_bias": "Dynamo accepts it and ignores it; allowed_token_ids and bad_words_token_ids work",
    "bad_words": "Dynamo takes such words as ids: bad_words_token_ids",
    "echo": "the answer would not match the ids",
    "truncate_prompt_tokens": "it would change the prompt",
    "request_id": "Dynamo makes its own",
    "kv_transfer_params": "ids go in by nvext.token_data here, which the adapter sets",
    "length_penalty": "Dynamo has no beam search",
    "use_beam_search": "Dynamo has no beam search",
    "best_of": "a reply is one turn",
}
"""Keys that are rejected, and what to do instead."""


def translated(parameters: Mapping[str, Any], route: Route) -> dict[str, Any]:
    """Return a body's keys for sampling parameters under the names of vLLM and OpenAI.

    >>> translated({"max_tokens": 5, "priority": 3, "logprobs": 0}, "chat")
    {'max_completion_tokens': 5, 'nvext': {'agent_hints': {'priority': -3}}, 'logprobs': True}
    >>> translated({"max_tokens": 5, "logprobs": 2}, "completions")
    {'max_tokens': 5, 'logprobs': 2}
    """
    body: dict[str, Any] = {}
    for name, value in parameters.items():
        if name not in TABLE:
            why = REJECTED.get(name, "Dynamo does not know it, and rejects or drops what it does not know")
            raise UnsupportedError(
                f"Sampling.extra: {name!r} does not work with Dynamo: {why}. Nothing was sent"
            )
        merge(body, TABLE[name](name, value, route))
    return body


def merge(body: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add keys to a body. Objects are joined; those that change are copies.

    >>> body = {"nvext": {"a": 1}}
    >>> merge(body, {"nvext": {"b": {"c": 2}}})
    >>> body
    {'nvext': {'a': 1, 'b': {'c': 2}}}
    """
    for name, value in more.items():
        if isinstance(value, Mapping) and name in ("nvext", "agent_hints"):
            inner = dict(body.get(name) or {})
            merge(inner, value)
            body[name] = inner
        else:
            body[name] = value


FIELDS = (
    *("completion_token_ids", "prompt_token_ids", "engine_data", "stop_reason", "detailed_finish_reason"),
    "worker_id",
)
"""Fields requested besides the OpenAI answer. Frontends ignore names that they do not know."""
ECHO = "prompt_token_ids"
"""The field that makes the frontend repeat the prompt's ids."""

PLACEHOLDER = {"role": "user", "content": "(token ids)"}
"""The message that the chat route demands; it prompts with `nvext.token_data` instead."""

OWNED = frozenset(("max_tokens", "n", "seed", "stop", "stop_token_ids", "temperature"))
"""Keys that `Sampling.extra` may not hold: they have fields of their own."""


@attrs.frozen(kw_only=True)
class DynamoOptions:
    """The options with which every turn of an engine is requested.

    Attributes:
        logprobs: Whether to request log-probabilities.
        routed_experts: Whether to request which experts each position was routed to.
        echo: Whether the frontend is to repeat the prompt's ids; the worker does so anyway.
    """

    logprobs: bool = True
    routed_experts: bool = False
    echo: bool = True

    @property
    def fields(self) -> list[str]:
        """The names for `extra_fields`."""
        fields = [name for name in FIELDS if self.echo or name != ECHO]
        return [*fields, "routed_experts"] if self.routed_experts else fields


def chat(
    model: str, messages: Sequence[Message], rendering: Rendering, sampling: Sampling, options: DynamoOptions
) -> dict[str, Any]:
    """Return the body that requests a turn after messages."""
    body = {"model": model, "messages": wire_messages(messages), **rendering_keys(rendering)}
    return _completed(body, sampling, sampling.max_tokens, options, "chat")


def chat_after_ids(turn: TurnAfterIds, options: DynamoOptions) -> dict[str, Any]:
    """Return the body that requests a turn after ids on the chat route, where the server's parsers run."""
    prompt = {"messages": [PLACEHOLDER], "nvext": {"token_data": turn.ids}}
    body = {"model": turn.model.name, **prompt, **rendering_keys(turn.rendering or Rendering())}
    return _completed(body, turn.sampling, turn.max_tokens, options, "chat")


def completion(turn: TurnAfterIds, options: DynamoOptions) -> dict[str, Any]:
    """Return the body that requests a turn after ids. Special tokens stay in the text."""
    body = {"model": turn.model.name, "prompt": turn.ids, "skip_special_tokens": False}
    return _completed(body, turn.sampling, turn.max_tokens, options, "completions")


def _completed(
    body: dict[str, Any], sampling: Sampling, limit: int | None, options: DynamoOptions, route: Route
) -> dict[str, Any]:
    """Return a body with sampling parameters and requested fields, under Dynamo's names."""
    check_unconstrained(sampling, "Dynamo", "its workers differ in which of them they obey")
    if sampling.n != 1:
        raise UnsupportedError(
            f"Sampling.n is {sampling.n}: Dynamo returns the ids of one turn per request; send that many "
            "requests. Nothing was sent",
            parameter="n",
        )
    parameters = sampling_keys(sampling, limit, OWNED)
    parameters |= {"logprobs": 0} if options.logprobs else {}
    merge(body, translated({**parameters, **sampling.extra}, route))
    merge(body, {"nvext": {"extra_fields": options.fields}})
    return body
