"""Report in which ways two messages that say the same are written differently."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypeAlias

from ..message import media_in
from .canonical import (
    IDENTITY,
    REASONING,
    Canonical,
    call_objects,
    function_of,
    other_keys,
    said_and_thought,
    sole_text,
    value_of,
)
from .receipts import Forgiveness, exactly

Plain: TypeAlias = dict[str, Any]


def receipts(ours: Plain, theirs: Plain, left: Canonical, right: Canonical) -> frozenset[Forgiveness]:
    """Return in which ways two messages with the canonical forms `left` and `right` are written differently.

    Without any, and with equal forms, the two hold equal data: True is not 1 there, nor 1 equal to 1.0.
    """
    pairs = zip(_written(ours, left), _written(theirs, right), strict=True)
    rows = (row for (row, first), (_, second) in pairs if any(map(_differ, first, second)))
    return frozenset((*rows, *([Forgiveness.ABSENT] if _left_out(ours, theirs) else ())))


def _differ(left: Any, right: Any) -> bool:
    """Return whether two sides are written differently; None is a side that has nothing of the kind."""
    return left is not None is not right and bool(left != right)


def _written(message: Plain, form: Canonical) -> list[tuple[Forgiveness, list[Any]]]:
    """Return how a message is written, in each respect that the canonical form ignores."""
    content, called, calls = message.get("content"), message.get("tool_calls"), call_objects(message)
    said, thinking = said_and_thought(message)
    text, thoughts = sole_text(said), [message.get(key) for key in REASONING]
    identity = form.content, form.name, form.tool_call_id, *((call.id, call.name) for call in form.tool_calls)
    listed = isinstance(called, list) if called else None
    return [
        (Forgiveness.EMPTY_CONTENT, [(text,) if text in (None, "", []) else None]),
        (Forgiveness.TEXT_PART, [isinstance(content or None, list)]),
        (Forgiveness.ARGUMENTS, [exactly(function_of(call).get("arguments")) for call in calls]),
        (Forgiveness.REASONING_NAME, [list(map(bool, thoughts)) if any(thoughts) else None]),
        (Forgiveness.EMPTY_REASONING, [None if thought else (thought,) for thought in thoughts]),
        (Forgiveness.EMPTY_CALLS, [None if called else exactly(called)]),
        (Forgiveness.CALL_KEYS, [listed, *map(_keys_beside, calls)]),
        (Forgiveness.REASONING_PARTS, [exactly([thinking, *(one for one in thoughts if type(one) is list)])]),
        (Forgiveness.OTHER_KEYS, [exactly(other_keys(message))]),
        (Forgiveness.NUMBERS, [_numbers(identity), set(_numbers(tuple(map(value_of, thoughts))))]),
        (Forgiveness.MEDIA, [exactly(media_in(message))]),
    ]


def _left_out(ours: Plain, theirs: Plain) -> bool:
    pairs = zip(_objects(ours), _objects(theirs), strict=False)
    return any(a.get(key) is b.get(key) is None for a, b in pairs for key in a.keys() ^ b.keys())


def _objects(message: Plain) -> Iterator[Plain]:
    """Yield the objects in a message with those of their keys that may be left out."""
    yield {key: message[key] for key in IDENTITY if key in message}
    for call in call_objects(message):
        yield {"id": call["id"]} if "id" in call else {}
        yield {key: value for key, value in function_of(call).items() if key == "arguments"}
    content = message.get("content")
    yield from (part for part in (content if isinstance(content, list) else ()) if isinstance(part, dict))


def _without(data: Plain, *keys: str) -> Any:
    return exactly({key: value for key, value in data.items() if key not in keys})


def _keys_beside(call: Plain) -> list[Any]:
    """Return a call without its id, its name and its arguments."""
    function = call.get("function")
    if not isinstance(function, dict):
        return [_without(call, "id", "name", "arguments")]
    return [_without(call, "id", "function"), _without(function, "name", "arguments")]


def _numbers(value: Any) -> list[str]:
    """Return the numbers in a canonical form as they are written."""
    if isinstance(value, tuple):
        return [number for item in value for number in _numbers(item)]
    return [str(value)] if isinstance(value, Decimal) else []
