"""What Dynamo calls the keys of a request: one table, and nothing is left out without a word.

Its frontend refuses what it does not know, and with `DYN_IGNORE_OPENAI_FE_UNSUPPORTED_FIELDS` drops it
silently. So a key goes along only where it is known to be heard, under the name it has there; every other one
is an `UnsupportedError` before anything is sent. `nvext` in `Sampling.extra` reaches what has no key here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tito_core import InputError
from tito_io.engines.protocol import UnsupportedError

from .routes import Route

Rule = Callable[[str, Any, Route], Mapping[str, Any]]
"""From a key, its value and the route to what stands in the body instead."""

OURS = frozenset(("token_data", "extra_fields", "use_raw_prompt"))
"""What of `nvext` is said by the adapter alone."""
TOP = {"chat": 20, "completions": 5}
"""How many alternatives a route gives at most."""


def same(name: str, value: Any, route: Route) -> Mapping[str, Any]:  # noqa: ARG001  # a rule
    """Let a key stand as it is."""
    return {name: value}


def chat_only(name: str, value: Any, route: Route) -> Mapping[str, Any]:
    """Let a key stand on the one route that knows it."""
    if route != "chat":
        raise UnsupportedError(
            f"Sampling.extra: Dynamo knows {name!r} on route='chat' only. Nothing was sent"
        )
    return {name: value}


def _at_most(name: str, value: Any, route: Route) -> Mapping[str, Any]:  # noqa: ARG001  # a rule
    """Each route has its own name for the most ids."""
    return {"max_completion_tokens" if route == "chat" else "max_tokens": value}


def _logprobs(name: str, value: Any, route: Route) -> Mapping[str, Any]:
    """Write a number of alternatives as the route does: beside a flag, or as the number."""
    if type(value) is not int or not 0 <= value <= TOP[route]:
        raise InputError(f"{name} is {value!r}: Dynamo's {route} route gives 0 to {TOP[route]} alternatives")
    if route == "completions":
        return {"logprobs": value}
    return {"logprobs": True, "top_logprobs": value} if value else {"logprobs": True}


def _priority(name: str, value: Any, route: Route) -> Mapping[str, Any]:  # noqa: ARG001  # a rule
    """Turn the sign: where others serve the least first, Dynamo serves the most important first."""
    if type(value) is not int:
        raise InputError(f"Sampling.extra: {name} is {value!r}: it is a whole number, the least served first")
    return {"nvext": {"agent_hints": {"priority": -value}}}


def _salt(name: str, value: Any, route: Route) -> Mapping[str, Any]:  # noqa: ARG001  # a rule
    return {"nvext": {name: value}}


GUIDED = ("regex", "json", "choice", "grammar")


def _guided(name: str, value: Any, route: Route) -> Mapping[str, Any]:  # noqa: ARG001  # a rule
    """Write the one way in which an output is structured as the key of its own that it has here."""
    if not isinstance(value, Mapping) or len(value) != 1 or not set(value) <= set(GUIDED):
        raise UnsupportedError(f"Sampling.extra: of {name} Dynamo takes exactly one of {', '.join(GUIDED)}")
    return {f"guided_{way}": said for way, said in value.items()}


def _ids(name: str, value: Any, route: Route) -> Mapping[str, Any]:  # noqa: ARG001  # a rule
    """Ids always come back: `extra_fields` asks for them."""
    if value is not True:
        raise InputError(f"Sampling.extra: {name} is {value!r}: without ids there is no reply")
    return {}


def _nvext(name: str, value: Any, route: Route) -> Mapping[str, Any]:  # noqa: ARG001  # a rule
    """Let Dynamo's own extensions stand, but for those that say which ids go in and come out."""
    wrong = sorted(OURS & set(value)) if isinstance(value, Mapping) else ["not an object"]
    if wrong:
        raise InputError(f"Sampling.extra: {name}: {wrong[0]} is no extra; the adapter says that itself")
    return {name: value}


TABLE: Mapping[str, Rule] = {
    "allowed_token_ids": same,
    "bad_words_token_ids": same,
    "cache_salt": _salt,
    "frequency_penalty": same,
    "guided_choice": same,
    "guided_decoding_backend": same,
    "guided_grammar": same,
    "guided_json": same,
    "guided_regex": same,
    "guided_whitespace_pattern": same,
    "ignore_eos": same,
    "include_stop_str_in_output": same,
    "logprobs": _logprobs,
    "logprob_token_ids": same,
    "max_tokens": _at_most,
    "metadata": same,
    "min_p": same,
    "min_tokens": same,
    "nvext": _nvext,
    "parallel_tool_calls": chat_only,
    "presence_penalty": same,
    "priority": _priority,
    "reasoning_effort": chat_only,
    "repetition_penalty": same,
    "response_format": chat_only,
    "return_token_ids": _ids,
    "return_tokens_as_token_ids": same,
    "seed": same,
    "service_tier": chat_only,
    "skip_special_tokens": same,
    "stop": same,
    "stop_token_ids": same,
    "store": chat_only,
    "structured_outputs": _guided,
    "temperature": same,
    "thinking_token_budget": chat_only,
    "tool_choice": chat_only,
    "top_k": same,
    "top_logprobs": _logprobs,
    "top_p": same,
    "user": same,
}
"""Every key that a request may have beside its prompt."""

DEAF: Mapping[str, str] = {
    "logit_bias": "Dynamo takes it and pays no heed to it; allowed_token_ids and bad_words_token_ids work",
    "bad_words": "Dynamo knows words as ids only: bad_words_token_ids",
    "echo": "it would part the ids from the answer",
    "truncate_prompt_tokens": "it would change the prompt",
    "request_id": "Dynamo makes its own",
    "kv_transfer_params": "ids go in by nvext.token_data here, which the adapter says itself",
    "length_penalty": "Dynamo has no beam search",
    "use_beam_search": "Dynamo has no beam search",
    "best_of": "a reply is one turn",
}
"""Keys that are refused, and what to do instead."""


def translated(wanted: Mapping[str, Any], route: Route) -> dict[str, Any]:
    """Return what stands in a request's body for keys in the words of vLLM and OpenAI.

    >>> translated({"max_tokens": 5, "priority": 3, "logprobs": 0}, "chat")
    {'max_completion_tokens': 5, 'nvext': {'agent_hints': {'priority': -3}}, 'logprobs': True}
    >>> translated({"max_tokens": 5, "logprobs": 2}, "completions")
    {'max_tokens': 5, 'logprobs': 2}
    """
    body: dict[str, Any] = {}
    for name, value in wanted.items():
        merge(body, _rule(name)(name, value, route))
    return body


def merge(body: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add to a body; objects are joined, and every object that changes is the body's own.

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


def _rule(name: str) -> Rule:
    rule = TABLE.get(name)
    if rule is None:
        why = DEAF.get(name, "Dynamo does not know it, and what it does not know it refuses or drops")
        raise UnsupportedError(f"Sampling.extra: {name!r} is not for Dynamo: {why}. Nothing was sent")
    return rule
