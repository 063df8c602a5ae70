"""The canonical form of a message: what it says, however it was spelled.

Serializers change a message's spelling and not its meaning: they drop None, add empty lists, re-space
the JSON of arguments. The canonical form forgives exactly that. It is used to compare; it is never rendered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import attrs

from ..message import MAX_DEPTH, Message, copied

Value: TypeAlias = Any
"""A hashable stand-in for JSON data in which True is not 1, 1 is 1.0, and the order of keys is lost."""

REASONING = ("reasoning", "reasoning_content")
"""The two names that servers have for what a model thought."""
IDENTITY = ("role", "content", *REASONING, "tool_calls", "tool_call_id", "name")
"""The keys that make a message what it is; other keys are ignored."""


@attrs.frozen
class CanonicalCall:
    """A tool call's identity."""

    id: Value
    name: Value
    arguments: Value


@attrs.frozen
class Canonical:
    """A message's identity: two messages are the same where these are equal."""

    role: str
    content: Value
    reasoning: Value
    tool_calls: tuple[CanonicalCall, ...]
    tool_call_id: Value
    name: Value


class _TooDeepError(ValueError):
    """Arguments nested beyond `MAX_DEPTH` stay text."""


def normalize(message: Message | Canonical) -> Canonical:
    """Return the canonical form of a message; a form that has it already is its own.

    >>> ours = {"role": "assistant", "content": None, "tool_calls": [
    ...     {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.0}'}}]}
    >>> theirs = {"role": "assistant", "tool_calls": [
    ...     {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}
    >>> normalize(ours) == normalize(theirs)
    True
    """
    return message if isinstance(message, Canonical) else normal_copy(copied([message], "message")[0])


def normal_copy(message: Mapping[str, Any]) -> Canonical:
    """Return the canonical form of a message that was copied already."""
    assistant = message["role"] == "assistant"
    return Canonical(
        role=message["role"],
        content=_content(message.get("content"), assistant=assistant),
        reasoning=_reasoning(message),
        tool_calls=tuple(map(_call, calls_in(message))),
        tool_call_id=_value(message.get("tool_call_id")),
        name=_value(message.get("name")),
    )


def trimmed(form: Canonical) -> Value:
    """Return an assistant's content without trailing white space; blank text is no content."""
    trims = form.role == "assistant" and isinstance(form.content, str)
    return (form.content.rstrip() or None) if trims else form.content


def _content(content: Any, *, assistant: bool) -> Value:
    text = sole_text(content)
    if assistant and text in (None, ""):
        return None
    if isinstance(text, list):
        return ("parts", *map(_part, text))
    return _value(text)


def sole_text(content: Any) -> Any:
    """Return the string of a lone text part, and anything else as it is."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part = {key: value for key, value in content[0].items() if value is not None}
        if part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str):
            return part["text"]
    return content


def _part(part: Any) -> Value:
    if isinstance(part, dict):
        return _value({key: value for key, value in part.items() if value is not None})
    return _value(part)


def _reasoning(message: Mapping[str, Any]) -> Value:
    """Return the reasoning under either of its names; both only where they differ."""
    said = [message.get(key) for key in REASONING]
    values = [_value(text) for text in said if text not in (None, "")]
    if len(values) > 1 and values[0] != values[1]:
        return ("two", *values)
    return values[0] if values else None


def calls_in(message: Mapping[str, Any]) -> list[Any]:
    """Return the tool calls as a list, whatever a client made of them."""
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else [calls] if calls else []


def said_in(call: dict[str, Any]) -> dict[str, Any]:
    """Return where a call's name and arguments stand: in `function`, or flat in the call."""
    function = call.get("function")
    return function if isinstance(function, dict) else call


def _call(call: Any) -> CanonicalCall:
    if not isinstance(call, dict):
        return CanonicalCall(None, None, ("odd", _value(call)))
    said = said_in(call)
    if "name" not in said:
        rest = {key: value for key, value in call.items() if key not in ("id", "index") and value is not None}
        return CanonicalCall(_value(call.get("id")), None, ("odd", _value(rest)))
    return CanonicalCall(_value(call.get("id")), _value(said.get("name")), _arguments(said.get("arguments")))


def _arguments(arguments: Any) -> Value:
    """Return arguments by value where they are one JSON object, and as they stand elsewhere."""
    if arguments in (None, ""):
        return _value({})
    if not isinstance(arguments, str):
        return _value(arguments)
    parsed = _parsed(arguments)
    if not isinstance(parsed, dict):
        return arguments
    try:
        return _value(parsed)
    except _TooDeepError:
        return arguments


def _parsed(text: str) -> Any:
    """Parse JSON that has no duplicate key and no NaN, or return None."""
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_int=Decimal, parse_float=Decimal
        )
    except (ValueError, InvalidOperation, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        raise ValueError("a key stands twice")
    return held


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _value(value: Any, depth: int = 0) -> Value:
    """Return a hashable stand-in that is equal exactly where the JSON means the same."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, int | float | Decimal):
        return _number(value)
    if depth > MAX_DEPTH:
        raise _TooDeepError
    if isinstance(value, dict):
        return ("object", *((key, _value(value[key], depth + 1)) for key in sorted(value)))
    return ("array", *(_value(item, depth + 1) for item in value))


def _number(value: float | Decimal) -> Value:
    """Return the exact decimal value; clients in JavaScript write 1 for 1.0."""
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else ("not finite", repr(value))
    return Decimal(value)
