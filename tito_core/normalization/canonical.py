"""The canonical form of a message: its identity, whatever way a client serialized it.

Serializers drop None, add empty lists and re-space the JSON of arguments. The canonical form removes exactly
these differences. It is used to compare messages and is never rendered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import attrs

from ..message import MAX_DEPTH, Message, copied, is_media
from .media import medium_of

Value: TypeAlias = Any
"""A hashable form of JSON data: True differs from 1, 1 equals 1.0, the order of keys is ignored."""

REASONING = ("reasoning", "reasoning_content")
"""The two names that servers use for a model's reasoning."""
IDENTITY = ("role", "content", *REASONING, "tool_calls", "tool_call_id", "name")
"""The keys that make up a message's identity; other keys are ignored."""
WHITE_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\ufeff"
"""What client programs trim: white space of Python, of Unicode, and JavaScript's byte order mark."""


@attrs.frozen
class CanonicalCall:
    """A tool call's identity.

    Attributes:
        id: As it was passed.
        name: Of the tool; for a call without one, all else that it holds.
        arguments: By value if they are one JSON object, else as they are.
    """

    id: Value
    name: Value
    arguments: Value


@attrs.frozen
class Canonical:
    """A message's identity: two messages are the same if their canonical forms are equal.

    Attributes:
        role: As it was passed.
        content: A string, a tuple of parts, or None; an assistant's empty content, `[]` too, is None.
        reasoning: The reasoning under either name; both values if they differ.
        tool_calls: One `CanonicalCall` per call, in order.
        tool_call_id: Of a tool message, the call that it answers.
        name: The author's name, or the tool's.
    """

    role: str
    content: Value
    reasoning: Value
    tool_calls: tuple[CanonicalCall, ...]
    tool_call_id: Value
    name: Value


def normalize(message: Message | Canonical) -> Canonical:
    """Return the canonical form of `message`; a `Canonical` is returned as it is.

    >>> ours = {"role": "assistant", "content": None, "tool_calls": [
    ...     {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.0}'}}]}
    >>> theirs = {"role": "assistant", "tool_calls": [
    ...     {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}
    >>> normalize(ours) == normalize(theirs)
    True
    """
    return message if isinstance(message, Canonical) else normal_copy(copied([message], "message")[0])


def normal_copy(message: Mapping[str, Any]) -> Canonical:
    """Return the canonical form of `message`, which must be a private copy."""
    assistant = message["role"] == "assistant"
    return Canonical(
        role=message["role"],
        content=_content(message.get("content"), assistant=assistant),
        reasoning=_reasoning(message),
        tool_calls=tuple(map(_call, calls_in(message))),
        tool_call_id=value_of(message.get("tool_call_id")),
        name=value_of(message.get("name")),
    )


def trimmed(text: Value) -> Value:
    r"""Return `text` without the white space around it, None if nothing is left; what is no text unchanged.

    >>> trimmed(" a b\n"), trimmed(" \n"), trimmed(("parts",))
    ('a b', None, ('parts',))
    """
    return (text.strip(WHITE_SPACE) or None) if isinstance(text, str) else text


def _content(content: Any, *, assistant: bool) -> Value:
    text = sole_text(content)
    if assistant and text in (None, "", []):
        return None
    if isinstance(text, list):
        return ("parts", *map(_part, text))
    return value_of(text)


def sole_text(content: Any) -> Any:
    """Return the string if `content` is a single text part, else `content` as it is."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part = {key: value for key, value in content[0].items() if value is not None}
        if part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str):
            return part["text"]
    return content


def _part(part: Any) -> Value:
    """Return a content part; a medium of which the identity is known counts by that."""
    medium = medium_of(part) if is_media(part) else None
    if medium is not None and medium.identity is not None:
        details = ((name, value_of(value)) for name, value in medium.details)
        return ("medium", medium.modality, medium.identity, *details)
    return value_of(
        {key: value for key, value in part.items() if value is not None} if isinstance(part, dict) else part
    )


def _reasoning(message: Mapping[str, Any]) -> Value:
    """Return the reasoning under either of its names; both values if they differ."""
    values = [value_of(message[key]) for key in REASONING if message.get(key) not in (None, "")]
    if len(values) > 1 and values[0] != values[1]:
        return ("two", *values)
    return values[0] if values else None


def calls_in(message: Mapping[str, Any]) -> list[Any]:
    """Return the tool calls of `message` as a list; a client may have sent a single object."""
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else [calls] if calls else []


def function_of(call: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the name and arguments of `call`: its `function`, or the call itself."""
    function = call.get("function")
    return function if isinstance(function, dict) else call


def call_objects(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of `message` that are objects."""
    return [call for call in calls_in(message) if isinstance(call, dict)]


def _call(call: Any) -> CanonicalCall:
    if not isinstance(call, dict):
        return CanonicalCall(None, ("odd", value_of(call)), None)
    function = function_of(call)
    if "name" in function:
        name, arguments = value_of(function["name"]), _arguments(function.get("arguments"))
        return CanonicalCall(value_of(call.get("id")), name, arguments)
    rest = {key: value for key, value in call.items() if key not in ("id", "index") and value is not None}
    return CanonicalCall(value_of(call.get("id")), ("odd", value_of(rest)), None)


def _arguments(arguments: Any) -> Value:
    """Return arguments by value if they are one JSON object, else as they are.

    Text is no such object where a key stands twice, with NaN or an infinity, or nested deeper than a message.
    """
    if arguments in (None, ""):
        return value_of({})
    try:
        parsed = _parsed(arguments) if isinstance(arguments, str) else arguments
        return value_of(parsed if isinstance(parsed, dict) else arguments)
    except (ValueError, InvalidOperation, RecursionError):
        return arguments


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        raise ValueError("duplicate key")
    return parsed


def _reject(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_parsed = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_reject, parse_int=Decimal, parse_float=Decimal
).decode


def value_of(value: Any, depth: int = 0) -> Value:
    """Return a hashable form of JSON data; two forms are equal exactly if the data mean the same.

    Raises `ValueError` where `value`, which stands at `depth` in its message, nests too deep.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, float):  # by its shortest decimal: JavaScript clients write 1 for 1.0
        return Decimal(repr(value)) if math.isfinite(value) else ("not finite", repr(value))
    if isinstance(value, int | Decimal):
        return Decimal(value)
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return ("object", *((key, value_of(value[key], depth + 1)) for key in sorted(value)))
    return ("array", *(value_of(item, depth + 1) for item in value))
