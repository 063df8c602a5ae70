"""Which messages are the same: the canonical form, and receipts for what it forgives.

Serializers change a message's spelling and not its meaning: they drop None, add empty lists, re-space
the JSON of arguments. The canonical form forgives exactly that. It is used to compare; it is never rendered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, TypeAlias

import attrs

from .message import MAX_DEPTH, Message, copied

Value: TypeAlias = Any
"""A hashable stand-in for JSON data in which True is not 1, 1 is 1.0, and the order of keys is lost."""

IDENTITY = ("role", "content", "reasoning", "reasoning_content", "tool_calls", "tool_call_id", "name")
"""The keys that make a message what it is; other keys are ignored."""


class Forgiveness(Enum):
    """A difference that did not count."""

    ABSENT = "a key was missing on one side and None on the other"
    EMPTY_CONTENT = "an assistant's content was None, empty or absent"
    TEXT_PART = "one text part against its string"
    ARGUMENTS = "arguments spelled differently: text or object, order of keys, spacing, number format"
    REASONING_NAME = "reasoning against reasoning_content"
    EMPTY_REASONING = "reasoning was None, empty or absent"
    EMPTY_CALLS = "tool_calls was None, empty or absent"
    CALL_KEYS = "keys of a tool call beside its id, name and arguments"
    OTHER_KEYS = "keys that are no part of a message's identity"
    OBJECT = "an object of a client library against a mapping"
    TRAILING_WHITESPACE = "white space at the end of an assistant's content (only where a policy says so)"
    DROPPED_REASONING = "an assistant's reasoning was not echoed (only where a policy says so)"
    RENAMED_TOOL_IDS = "tool call ids renamed consistently (only where a policy says so)"


OPTIONAL = frozenset(
    (Forgiveness.TRAILING_WHITESPACE, Forgiveness.DROPPED_REASONING, Forgiveness.RENAMED_TOOL_IDS)
)
"""What is forgiven only when a policy names it."""


@attrs.frozen
class Call:
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
    tool_calls: tuple[Call, ...]
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
        tool_calls=tuple(map(_call, _calls(message))),
        tool_call_id=_value(message.get("tool_call_id")),
        name=_value(message.get("name")),
    )


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
    said = [message.get(key) for key in ("reasoning", "reasoning_content")]
    values = [_value(text) for text in said if text not in (None, "")]
    if len(values) > 1 and values[0] != values[1]:
        return ("two", *values)
    return values[0] if values else None


def _calls(message: Mapping[str, Any]) -> list[Any]:
    """Return the tool calls as a list, whatever a client made of them."""
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else [calls] if calls else []


def _said(call: dict[str, Any]) -> dict[str, Any]:
    """Return where a call's name and arguments stand: in `function`, or flat in the call."""
    function = call.get("function")
    return function if isinstance(function, dict) else call


def _call(call: Any) -> Call:
    if not isinstance(call, dict):
        return Call(None, None, ("odd", _value(call)))
    said = _said(call)
    if "name" not in said:
        rest = {key: value for key, value in call.items() if key not in ("id", "index") and value is not None}
        return Call(_value(call.get("id")), None, ("odd", _value(rest)))
    return Call(_value(call.get("id")), _value(said.get("name")), _arguments(said.get("arguments")))


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


def same(
    ours: Message, theirs: Message, forgive: frozenset[Forgiveness] = frozenset()
) -> frozenset[Forgiveness] | None:
    """Return what had to be forgiven for two messages to be the same, or None where they differ.

    `ours` is what was stored, `theirs` what came back; `forgive` names optional differences.

    >>> same({"role": "user", "content": "a"}, {"role": "user", "content": "b"}) is None
    True
    >>> same({"role": "assistant", "content": ""}, {"role": "assistant", "content": None})
    frozenset({<Forgiveness.EMPTY_CONTENT: "an assistant's content was None, empty or absent">})
    """
    kinds = {type(ours) is dict, type(theirs) is dict}
    found = same_copies(copied([ours], "ours")[0], copied([theirs], "theirs")[0], Renaming(forgive))
    return found if found is None or len(kinds) == 1 else found | {Forgiveness.OBJECT}


@attrs.define
class Renaming:
    """What a comparison of conversations carries from message to message."""

    forgive: frozenset[Forgiveness]
    ours: dict[Value, int] = attrs.field(factory=dict)
    theirs: dict[Value, int] = attrs.field(factory=dict)

    def same_id(self, ours: Value, theirs: Value) -> bool:
        """Tell whether two ids are the same, or the same under the renaming seen so far."""
        if Forgiveness.RENAMED_TOOL_IDS not in self.forgive or ours is None or theirs is None:
            return bool(ours == theirs)
        return _ordinal(self.ours, ours) == _ordinal(self.theirs, theirs)


def _ordinal(seen: dict[Value, int], item: Value) -> int:
    return seen.setdefault(item, len(seen))


def same_copies(
    ours: dict[str, Any], theirs: dict[str, Any], renaming: Renaming
) -> frozenset[Forgiveness] | None:
    """Compare two copied messages; see `same`."""
    left, right = normal_copy(ours), normal_copy(theirs)
    extra = _same_forms(left, right, renaming)
    if extra is None:
        return None
    return extra | _spelling(ours, theirs)


def _same_forms(left: Canonical, right: Canonical, renaming: Renaming) -> frozenset[Forgiveness] | None:
    """Compare canonical forms; return the optional differences that were forgiven, or None."""
    if (left.role, left.name, len(left.tool_calls)) != (right.role, right.name, len(right.tool_calls)):
        return None
    found = [
        _same_content(left, right, renaming.forgive),
        _same_reasoning(left, right, renaming.forgive),
        *(_same_call(a, b, renaming) for a, b in zip(left.tool_calls, right.tool_calls, strict=True)),
        _same_tool_id(left.tool_call_id, right.tool_call_id, renaming),
    ]
    return None if None in found else frozenset().union(*filter(None, found))


_SAME: frozenset[Forgiveness] = frozenset()


def _same_content(
    left: Canonical, right: Canonical, forgive: frozenset[Forgiveness]
) -> frozenset[Forgiveness] | None:
    if left.content == right.content:
        return _SAME
    optional = Forgiveness.TRAILING_WHITESPACE
    if optional in forgive and left.role == "assistant" and trimmed(left) == trimmed(right):
        return frozenset((optional,))
    return None


def trimmed(form: Canonical) -> Value:
    """Return an assistant's content without trailing white space; blank text is no content."""
    trims = form.role == "assistant" and isinstance(form.content, str)
    return (form.content.rstrip() or None) if trims else form.content


def _same_reasoning(
    left: Canonical, right: Canonical, forgive: frozenset[Forgiveness]
) -> frozenset[Forgiveness] | None:
    if left.reasoning == right.reasoning:
        return _SAME
    optional = Forgiveness.DROPPED_REASONING
    if optional in forgive and left.role == "assistant" and right.reasoning is None:
        return frozenset((optional,))
    return None


def _same_call(left: Call, right: Call, renaming: Renaming) -> frozenset[Forgiveness] | None:
    if (left.name, left.arguments) != (right.name, right.arguments):
        return None
    return _same_tool_id(left.id, right.id, renaming)


def _same_tool_id(left: Value, right: Value, renaming: Renaming) -> frozenset[Forgiveness] | None:
    if not renaming.same_id(left, right):
        return None
    return _SAME if left == right else frozenset((Forgiveness.RENAMED_TOOL_IDS,))


def _spelling(ours: dict[str, Any], theirs: dict[str, Any]) -> frozenset[Forgiveness]:
    """Name the ways in which two messages that are the same were written differently."""
    found = {name for name, differs in _SPELLINGS.items() if differs(ours, theirs)}
    return frozenset(found)


def _absent(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    keys = (key for key in IDENTITY if (key in ours) != (key in theirs))
    return any(ours.get(key) is None and theirs.get(key) is None for key in keys)


def _empty_content(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    texts = [sole_text(message.get("content")) for message in (ours, theirs)]
    return texts[0] != texts[1] and all(text in (None, "") for text in texts)


def _text_part(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    lists = [isinstance(message.get("content"), list) for message in (ours, theirs)]
    return lists[0] != lists[1]


def _reasoning_name(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    names = [[k for k in ("reasoning", "reasoning_content") if m.get(k)] for m in (ours, theirs)]
    return bool(names[0] and names[1]) and names[0] != names[1]


def _empty_reasoning(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    pairs = [(ours.get(key), theirs.get(key)) for key in ("reasoning", "reasoning_content")]
    return any(a != b and not a and not b for a, b in pairs)


def _empty_calls(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    calls = [message.get("tool_calls") for message in (ours, theirs)]
    return calls[0] != calls[1] and not calls[0] and not calls[1]


def _arguments_of(message: dict[str, Any]) -> list[Any]:
    return [_said(call).get("arguments") for call in _calls(message) if isinstance(call, dict)]


def _argument_spelling(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return bool(_exactly(_arguments_of(ours)) != _exactly(_arguments_of(theirs)))


def _exactly(value: Any) -> Any:
    """Return data in which only what is written alike is equal."""
    if isinstance(value, dict):
        return [(key, _exactly(item)) for key, item in value.items()]
    if isinstance(value, list):
        return list(map(_exactly, value))
    return (type(value).__name__, value)


def _call_rest(message: dict[str, Any]) -> list[Any]:
    known = {"id", "function", "name", "arguments"}
    calls = [call for call in _calls(message) if isinstance(call, dict)]
    return [({k: v for k, v in call.items() if k not in known}, _said(call) is call) for call in calls]


def _call_keys(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return _call_rest(ours) != _call_rest(theirs)


def _other_keys(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    rest = [{k: v for k, v in message.items() if k not in IDENTITY} for message in (ours, theirs)]
    return rest[0] != rest[1]


_SPELLINGS = {
    Forgiveness.ABSENT: _absent,
    Forgiveness.EMPTY_CONTENT: _empty_content,
    Forgiveness.TEXT_PART: _text_part,
    Forgiveness.ARGUMENTS: _argument_spelling,
    Forgiveness.REASONING_NAME: _reasoning_name,
    Forgiveness.EMPTY_REASONING: _empty_reasoning,
    Forgiveness.EMPTY_CALLS: _empty_calls,
    Forgiveness.CALL_KEYS: _call_keys,
    Forgiveness.OTHER_KEYS: _other_keys,
}
