"""Copy what a template gets into plain JSON values.

The sandbox knows the harmful attributes of plain types, and of no others. And a template that gets copies
cannot change the caller's values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import InputError
from tito_io.fields import json_kind

_EXACT = frozenset({str, int, float, bool, type(None)})

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Names of a message's reasoning, the one that most templates read first."""


def plain(value: Any, name: str) -> Any:
    """Return a copy of `value` in dicts, lists, tuples and scalars; errors call it `name`.

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
    if kind is dict or isinstance(value, Mapping):  # the first test is cheap, and mostly enough
        return {_copied(key, name): _copied(part, name) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_copied(part, name) for part in value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return [_copied(part, name) for part in value]
    return _scalar(value, name)


def _scalar(value: Any, name: str) -> str | int | float:
    """Return an instance of a subclass of `str`, `int` or `float` as the plain type: a member of an enum."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise InputError(
        f"{name}: {type(value).__name__} is not a JSON value; pass a string, number, list or dict"
    )


def plain_messages(messages: Any) -> list[dict[str, Any]]:
    """Return copies of `messages` in plain JSON values.

    >>> from types import MappingProxyType
    >>> plain_messages([MappingProxyType({"role": "assistant", "content": None})])
    [{'role': 'assistant', 'content': None}]
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InputError(f"messages: give a list of messages, not {json_kind(messages)}")
    if not messages:
        raise InputError("messages: give at least one message")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Any, name: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InputError(f"{name}: a message is an object with a role, not {json_kind(message)}")
    copied: dict[str, Any] = plain(message, name)
    return copied


def normalized(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as transformers 5.23 gives it to a template: no nulls, reasoning under all its names.

    >>> normalized({"role": "assistant", "content": None, "reasoning": "hm"})
    {'thinking': 'hm', 'role': 'assistant', 'reasoning': 'hm', 'reasoning_content': 'hm'}
    """
    given = {key: part for key, part in message.items() if part is not None}
    reasoning = next((given[key] for key in REASONING_FIELDS if key in given), None)
    return given if reasoning is None else {"thinking": reasoning, **given, "reasoning_content": reasoning}


def plain_objects(values: Any, name: str) -> list[dict[str, Any]] | None:
    """Return tools or documents, called `name`, as a template gets them: a list of objects, or None."""
    if values is None:
        return None
    if not isinstance(values, Sequence):
        raise InputError(f"{name}: give a list of JSON objects, not {json_kind(values)}")
    return [_plain_object(one, f"{name}[{index}]") for index, one in enumerate(values)]


def _plain_object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        hint = "; transformers.utils.get_json_schema makes one of a function" if callable(value) else ""
        raise InputError(f"{name}: give a JSON object, not {json_kind(value)}{hint}")
    copied: dict[str, Any] = plain(value, name)
    return copied
