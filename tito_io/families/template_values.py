"""What a template may see: JSON values, built anew.

The sandbox knows which attributes of the plain types do harm, and knows no others. And a template that
was given copies cannot change what the caller holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import InputError

_EXACT = frozenset({str, int, float, bool, type(None)})

KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a string"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)
"""What JSON calls values, the most particular first."""

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""The names that a message's reasoning goes by, the one that most templates read first."""


def called(value: Any) -> str:
    """Return what JSON calls a value; of what is none, its type's name.

    >>> [called(one) for one in (None, True, 1, "x", {}, [], {1})]
    ['null', 'true or false', 'a number', 'a string', 'an object', 'a list', 'set']
    """
    return next((name for kind, name in KINDS if isinstance(value, kind)), type(value).__name__)


def plain(value: Any, name: str) -> Any:
    """Return a copy of `value` in dicts, lists, tuples and scalars; `name` is what an error calls it.

    >>> from types import MappingProxyType
    >>> plain(MappingProxyType({"role": "user", "tags": (1, 2)}), "messages")
    {'role': 'user', 'tags': (1, 2)}
    """
    try:
        return _copied(value, name)
    except RecursionError:
        raise InputError(f"{name}: nested too deeply, or in itself; pass plain JSON values") from None


def _copied(value: Any, name: str) -> Any:
    kind = type(value)
    if kind in _EXACT:
        return value
    if kind is dict or isinstance(value, Mapping):  # the first question is the cheap one
        return {_copied(key, name): _copied(part, name) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_copied(part, name) for part in value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return [_copied(part, name) for part in value]
    return _scalar(value, name)


def _scalar(value: Any, name: str) -> str | int | float:
    """Return the plain twin of a `str`, `int` or `float` of the caller's own, an enumeration's member say."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise InputError(
        f"{name}: a template renders JSON values, and {type(value).__name__} is none; pass it as one"
    )


def plain_messages(messages: Any) -> list[dict[str, Any]]:
    """Return `messages` as a template gets them: without keys that are None, reasoning under both its names.

    >>> plain_messages([{"role": "assistant", "content": None, "reasoning": "hm"}])
    [{'thinking': 'hm', 'role': 'assistant', 'reasoning': 'hm', 'reasoning_content': 'hm'}]
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InputError(f"messages: a list of messages is needed, not {called(messages)}")
    if not messages:
        raise InputError("messages: there is no message to render")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Any, name: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InputError(f"{name}: a message is an object with a role, not {called(message)}")
    said: dict[str, Any] = plain({key: part for key, part in message.items() if part is not None}, name)
    reasoning = next((said[key] for key in REASONING_FIELDS if key in said), None)
    return said if reasoning is None else {"thinking": reasoning, **said, "reasoning_content": reasoning}


def plain_objects(values: Any, name: str) -> list[dict[str, Any]] | None:
    """Return tools or documents as a template gets them: a list of objects, or None for none at all."""
    if values is None:
        return None
    if not isinstance(values, Sequence) or not all(isinstance(one, Mapping) for one in values):
        raise InputError(f"{name}: a list of JSON objects is needed")
    return [plain(one, f"{name}[{index}]") for index, one in enumerate(values)]
