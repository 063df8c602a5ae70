"""A request's fields, taken out one by one: what is of the wrong kind, and what nobody knows, is named.

A field that is null says nothing, in every API here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from .protocol import UntranslatableError

T = TypeVar("T")

ENGINE = frozenset(
    (
        "allowed_token_ids",
        "bad_words",
        "cache_salt",
        "chat_template_kwargs",
        "frequency_penalty",
        "ignore_eos",
        "logit_bias",
        "min_p",
        "min_tokens",
        "no_stop_trim",
        "presence_penalty",
        "priority",
        "repetition_penalty",
        "seed",
        "stop_regex",
        "stop_token_ids",
        "structured_outputs",
        "temperature",
        "thinking_token_budget",
        "top_k",
        "top_p",
    )
)
"""Sampling arguments that engines know, under the same name in every dialect; they are passed on."""

KINDS: Mapping[type, str] = {
    bool: "true or false",
    dict: "an object",
    int: "a whole number",
    list: "a list",
    str: "a string",
}


def body_of(body: object) -> dict[str, Any]:
    """Return a request's fields that say something.

    >>> body_of({"model": "m", "user": None})
    {'model': 'm'}
    """
    if not isinstance(body, Mapping):
        raise UntranslatableError("body", f"is {type(body).__name__}", "send a JSON object")
    return present(body)


def present(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is not null."""
    return {name: value for name, value in found.items() if value is not None}


def of_kind(value: Any, kind: type[T], field: str) -> T:
    """Return a value that is of a kind, and true is no number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UntranslatableError(field, f"is {value!r:.60}", f"give {KINDS[kind]}")
    return value


def taken(said: Mapping[str, Any], name: str, kind: type[T], within: str = "") -> T | None:
    """Return a field of a kind, None where it says nothing."""
    return of_kind(said[name], kind, within + name) if said.get(name) is not None else None


def demanded(said: Mapping[str, Any], name: str, kind: type[T], within: str = "") -> T:
    """Return a field of a kind that must be there."""
    if said.get(name) is None:
        raise UntranslatableError(within + name, "is missing", f"give {KINDS[kind]}")
    return of_kind(said[name], kind, within + name)


def objects(value: Any, field: str) -> list[dict[str, Any]]:
    """Return a list of objects."""
    found = of_kind(value, list, field)
    return [of_kind(one, dict, f"{field}[{place}]") for place, one in enumerate(found)]


def known(said: Mapping[str, Any], names: Collection[str], within: str = "") -> None:
    """Demand that nothing else is said; a null or an empty list says nothing."""
    odd = sorted(name for name, value in said.items() if name not in names and value not in (None, []))
    if odd:
        raise UntranslatableError(
            within + odd[0], "is nothing that can be translated", "leave it out; nothing is dropped silently"
        )


def only(
    said: Mapping[str, Any], name: str, allowed: Collection[Any], instead: str, within: str = ""
) -> None:
    """Demand that a field says one of few things, or nothing."""
    value = said.get(name)
    if value is not None and not any(value == one and type(value) is type(one) for one in allowed):
        raise UntranslatableError(within + name, f"{value!r:.60} cannot be honoured", instead)


def passed(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling arguments that stand under an engine's own names."""
    return {name: value for name, value in said.items() if name in ENGINE}


def with_template(sampling: dict[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return sampling arguments with further arguments of the chat template.

    Those that the client gave as template arguments hold.

    >>> with_template({"chat_template_kwargs": {"a": 1}}, {"a": 2, "b": 3})
    {'chat_template_kwargs': {'a': 1, 'b': 3}}
    """
    if not args:
        return sampling
    given = of_kind(sampling.get("chat_template_kwargs", {}), dict, "chat_template_kwargs")
    return {**sampling, "chat_template_kwargs": {**args, **given}}
