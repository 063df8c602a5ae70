"""Differences between messages that do not count, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import zip_longest
from typing import Any, TypeAlias

from .canonical import IDENTITY, REASONING, calls_in, said_in, sole_text


class Forgiveness(Enum):
    """A difference that did not count."""

    ABSENT = "a key was missing on one side and None on the other"
    EMPTY_CONTENT = "an assistant's content was None, empty or absent"
    TEXT_PART = "one text part against its string"
    ARGUMENTS = "arguments spelled differently: text or object, order of keys, spacing, format of numbers"
    REASONING_NAME = "reasoning against reasoning_content"
    EMPTY_REASONING = "reasoning was None, empty or absent"
    EMPTY_CALLS = "tool_calls was None, empty or absent"
    CALL_KEYS = "keys of a tool call beside its id, name and arguments, or a call that stands in no list"
    OTHER_KEYS = "keys that are no part of a message's identity"
    NUMBERS = "a number outside of arguments written differently, such as 1 and 1.0"
    OBJECT = "an object of a client library against a mapping"
    TRAILING_WHITESPACE = "white space at the end of an assistant's content (only where a policy says so)"
    DROPPED_REASONING = "an assistant's reasoning was not echoed (only where a policy says so)"
    RENAMED_TOOL_IDS = "tool call ids renamed consistently (only where a policy says so)"


OPTIONAL = frozenset(
    (Forgiveness.TRAILING_WHITESPACE, Forgiveness.DROPPED_REASONING, Forgiveness.RENAMED_TOOL_IDS)
)
"""What is forgiven only when a policy names it."""


Plain: TypeAlias = dict[str, Any]


def receipts(ours: Plain, theirs: Plain) -> frozenset[Forgiveness]:
    """Name the ways in which two messages that are the same were written differently.

    >>> receipts({"role": "user", "content": "a"}, {"role": "user", "content": "a", "name": None})
    frozenset({<Forgiveness.ABSENT: 'a key was missing on one side and None on the other'>})
    """
    return frozenset(name for name, differs in _SPELLINGS.items() if differs(ours, theirs))


def exactly(value: Any) -> Any:
    """Return data in which only what is written alike is equal, but for the order of keys."""
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(exactly, value))
    return (type(value), repr(value) if isinstance(value, float) else value)  # 0.0 is not written -0.0


def _absent(ours: Plain, theirs: Plain) -> bool:
    return any(
        (key in a) != (key in b) and a.get(key) is b.get(key) is None
        for (a, keys), (b, _) in zip(_optional(ours), _optional(theirs), strict=False)
        for key in keys or {*a, *b}
    )


def _optional(message: Plain) -> Iterator[tuple[Plain, tuple[str, ...]]]:
    """Yield what may leave out keys, and which keys; none named means any."""
    yield message, IDENTITY
    for call in _objects(calls_in(message)):
        yield call, ("id",)
        yield said_in(call), ("arguments",)
    yield from ((part, ()) for part in _objects(message.get("content")))


def _objects(items: Any) -> list[Plain]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _empty_content(ours: Plain, theirs: Plain) -> bool:
    texts = [sole_text(message.get("content")) for message in (ours, theirs)]
    return texts[0] != texts[1] and all(text in (None, "") for text in texts)


def _text_part(ours: Plain, theirs: Plain) -> bool:
    lists = [isinstance(message.get("content"), list) for message in (ours, theirs)]
    return lists[0] != lists[1]


def _reasoning_name(ours: Plain, theirs: Plain) -> bool:
    names = [[key for key in REASONING if message.get(key)] for message in (ours, theirs)]
    return bool(names[1]) and names[0] != names[1]


def _empty_reasoning(ours: Plain, theirs: Plain) -> bool:
    pairs = [(ours.get(key), theirs.get(key)) for key in REASONING]
    return any(a != b and not a and not b for a, b in pairs)


def _empty_calls(ours: Plain, theirs: Plain) -> bool:
    calls = [message.get("tool_calls") for message in (ours, theirs)]
    return not calls[1] and exactly(calls[0]) != exactly(calls[1])


def _arguments(ours: Plain, theirs: Plain) -> bool:
    pairs = zip_longest(*(_objects(calls_in(message)) for message in (ours, theirs)), fillvalue={})
    given = [[said_in(call).get("arguments") for call in pair] for pair in pairs]
    return any(exactly(one) != exactly(other) for one, other in given)


def _call_keys(ours: Plain, theirs: Plain) -> bool:
    return bool(_call_rest(ours) != _call_rest(theirs))


def _call_rest(message: Plain) -> Any:
    """Return how the calls stand in a message, and their keys beside what makes them calls."""
    listed = isinstance(message.get("tool_calls"), list)
    return [listed, *map(_beside, _objects(calls_in(message)))] if calls_in(message) else []


def _beside(call: Plain) -> list[Any]:
    """Return a call without its id, its name and its arguments."""
    function = call.get("function")
    if not isinstance(function, dict):
        return [_without(call, "id", "name", "arguments")]
    return [_without(call, "id", "function"), _without(function, "name", "arguments")]


def _without(data: Plain, *keys: str) -> Any:
    return exactly({key: value for key, value in data.items() if key not in keys})


def _other_keys(ours: Plain, theirs: Plain) -> bool:
    return bool(_without(ours, *IDENTITY) != _without(theirs, *IDENTITY))


def _numbers(ours: Plain, theirs: Plain) -> bool:
    return _figures(ours) != _figures(theirs)


def _figures(message: Plain) -> list[Any]:
    """Return the numbers in all that a message says but the arguments of its calls."""
    thoughts = {figure for key in REASONING for figure in _written(message.get(key))}
    said = (message.get(key) for key in ("content", "tool_call_id", "name"))
    return [thoughts, *map(_written, said), *map(_written, map(_called, calls_in(message)))]


def _called(call: Any) -> Any:
    """Return what makes a call the one that it is: all but its index where it has no name."""
    if not isinstance(call, dict):
        return call
    said = said_in(call)
    return [call.get("id"), said["name"]] if "name" in said else {**call, "index": None}


def _written(value: Any) -> list[Any]:
    """Return the numbers in data as they are written, whatever the order of keys."""
    if isinstance(value, dict):
        return [figure for key in sorted(value) for figure in _written(value[key])]
    if isinstance(value, list):
        return [figure for item in value for figure in _written(item)]
    return [exactly(value)] if isinstance(value, int | float) else []


_SPELLINGS: dict[Forgiveness, Callable[[Plain, Plain], bool]] = {
    Forgiveness.ABSENT: _absent,
    Forgiveness.EMPTY_CONTENT: _empty_content,
    Forgiveness.TEXT_PART: _text_part,
    Forgiveness.ARGUMENTS: _arguments,
    Forgiveness.REASONING_NAME: _reasoning_name,
    Forgiveness.EMPTY_REASONING: _empty_reasoning,
    Forgiveness.EMPTY_CALLS: _empty_calls,
    Forgiveness.CALL_KEYS: _call_keys,
    Forgiveness.OTHER_KEYS: _other_keys,
    Forgiveness.NUMBERS: _numbers,
}
