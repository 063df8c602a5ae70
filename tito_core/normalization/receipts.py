"""Receipts: the differences between two messages that were forgiven, by name."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, TypeAlias

from ..message import media_in
from .canonical import IDENTITY, REASONING, calls_in, function_of, sole_text


class Forgiveness(Enum):
    """A difference between two messages that did not prevent a match."""

    ABSENT = "a key was missing on one side and None on the other"
    EMPTY_CONTENT = "an assistant's content was None, empty or absent"
    TEXT_PART = "content was one text part on one side and a string on the other"
    ARGUMENTS = "arguments spelled differently: text or object, order of keys, spacing, format of numbers"
    REASONING_NAME = "reasoning was named reasoning on one side and reasoning_content on the other"
    EMPTY_REASONING = "reasoning was None, empty or absent"
    EMPTY_CALLS = "tool_calls was None, empty or absent"
    CALL_KEYS = "keys of a call besides its id, name and arguments, or a single call that was not in a list"
    OTHER_KEYS = "keys that are no part of a message's identity"
    NUMBERS = "a number outside of arguments written differently, such as 1 and 1.0"
    MEDIA = "the same image written differently, such as its bytes on one side and its key on the other"
    OBJECT = "an object of a client library on one side and a mapping on the other"
    OUTER_WHITESPACE = "white space around an assistant's content or reasoning (optional)"
    DROPPED_CONTENT = "an assistant's content beside tool calls was not echoed (optional)"
    DROPPED_REASONING = "an assistant's reasoning was not echoed (optional)"
    RENAMED_TOOL_IDS = "tool call ids renamed consistently (optional)"


OPTIONAL = frozenset(one for one in Forgiveness if one.value.endswith("(optional)"))
"""What is forgiven only if a policy names it."""

Plain: TypeAlias = dict[str, Any]


def receipts(ours: Plain, theirs: Plain) -> frozenset[Forgiveness]:
    """Return in which ways two messages with one canonical form were written differently.

    Without any, the two hold equal data: True is not 1 there, nor 1 equal to 1.0.

    >>> receipts({"role": "user", "content": "a"}, {"role": "user", "content": "a", "name": None})
    frozenset({<Forgiveness.ABSENT: 'a key was missing on one side and None on the other'>})
    """
    left, right = _writings(ours), _writings(theirs)
    return frozenset((*(name for name in left if left[name] != right[name]), *_blanks(ours, theirs)))


def _writings(message: Plain) -> dict[Forgiveness, Any]:
    """Return how a message is written, in each respect that the canonical form ignores."""
    calls = [call for call in calls_in(message) if isinstance(call, dict)]
    return {
        Forgiveness.TEXT_PART: isinstance(message.get("content") or None, list),
        Forgiveness.ARGUMENTS: [exactly(function_of(call).get("arguments")) for call in calls],
        Forgiveness.CALL_KEYS: [
            *([isinstance(message["tool_calls"], list)] if calls_in(message) else []),
            *map(_keys_beside, calls),
        ],
        Forgiveness.MEDIA: exactly(media_in(message)),
        Forgiveness.OTHER_KEYS: _without(message, *IDENTITY),
        Forgiveness.NUMBERS: _numbers_in(message),
    }


def _blanks(ours: Plain, theirs: Plain) -> Iterator[Forgiveness]:
    """Yield the differences in what is missing, None or empty, and in the name of the reasoning."""
    texts = [sole_text(message.get("content")) for message in (ours, theirs)]
    calls = [message.get("tool_calls") for message in (ours, theirs)]
    names = [[key for key in REASONING if message.get(key)] for message in (ours, theirs)]
    blank_reasoning = [(ours.get(key), theirs.get(key)) for key in REASONING]
    pairs = zip(_optional(ours), _optional(theirs), strict=False)
    keyed = ((key, a, b) for (a, keys), (b, _) in pairs for key in keys or {*a, *b})
    if any((key in a) != (key in b) and a.get(key) is b.get(key) is None for key, a, b in keyed):
        yield Forgiveness.ABSENT
    if texts[0] != texts[1] and all(text in (None, "", []) for text in texts):
        yield Forgiveness.EMPTY_CONTENT
    if not calls[1] and exactly(calls[0]) != exactly(calls[1]):
        yield Forgiveness.EMPTY_CALLS
    if all(names) and names[0] != names[1]:
        yield Forgiveness.REASONING_NAME
    if any(a != b and not a and not b for a, b in blank_reasoning):
        yield Forgiveness.EMPTY_REASONING


def _optional(message: Plain) -> Iterator[tuple[Plain, tuple[str, ...]]]:
    """Yield the objects in a message whose keys may be left out, and which keys; () means any."""
    yield message, IDENTITY
    for call in calls_in(message):
        if isinstance(call, dict):
            yield call, ("id",)
            yield function_of(call), ("arguments",)
    content = message.get("content")
    yield from (
        (part, ()) for part in (content if isinstance(content, list) else ()) if isinstance(part, dict)
    )


def exactly(value: Any) -> Any:
    """Return data that are equal only if they are written the same, except for the order of keys."""
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(exactly, value))
    written = repr(value) if isinstance(value, float) else value  # 0.0 == -0.0, written differently
    return type(value), written


def _without(data: Plain, *keys: str) -> Any:
    return exactly({key: value for key, value in data.items() if key not in keys})


def _keys_beside(call: Plain) -> list[Any]:
    """Return a call without its id, its name and its arguments."""
    function = call.get("function")
    if not isinstance(function, dict):
        return [_without(call, "id", "name", "arguments")]
    return [_without(call, "id", "function"), _without(function, "name", "arguments")]


def _numbers_in(message: Plain) -> list[Any]:
    """Return the numbers in the identity of a message as they are written, except in arguments."""
    reasoning = {number for key in REASONING for number in _numbers(message.get(key))}
    texts = (message.get(key) for key in ("content", "tool_call_id", "name"))
    return [reasoning, *map(_numbers, texts), *map(_numbers, map(_call_identity, calls_in(message)))]


def _call_identity(call: Any) -> Any:
    """Return a call's id and name; for a call without a name, all but its index."""
    if not isinstance(call, dict):
        return call
    function = function_of(call)
    return [call.get("id"), function["name"]] if "name" in function else {**call, "index": None}


def _numbers(value: Any) -> list[Any]:
    """Return the numbers in data as they are written, whatever the order of keys."""
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in _numbers(value[key])]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [exactly(value)] if isinstance(value, int | float) else []
