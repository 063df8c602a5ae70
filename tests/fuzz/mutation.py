"""Changes of inputs: a value in JSON is replaced, removed, repeated or moved; other bytes are cut or changed.

Random bytes seldom stay JSON, so that a fuzzer that knows only bytes tries little behind the JSON parser.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import orjson

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 255, 1 << 31, 1 << 63, (1 << 64) - 1, -(1 << 63)),
    *(0.5, -0.5, 1e308, -1e308, 5e-324, "", "a", "0", "\u0000", "\u2028", "\ufeff", "e\u0301", "\U0001f642"),
    *(
        "stop",
        "length",
        "tool_calls",
        "assistant",
        "user",
        "tool",
        "system",
        "text",
        "{}",
        "[1]",
        "AA==",
        "null",
    ),
    *([], {}, [[]], [None], [0], [1, 2, 3], [-1], [0.5], {"a": 1}, {"": None}, [{}], [[1, 2], [3]]),
)
"""Values that are of another type, or at the edge of one."""
TEXTS: tuple[bytes, ...] = (
    *(b"1e999", b"-0", b"1" * 30, b"1" * 5000, b"NaN", b'"\\ud800"', b"[" * 900 + b"]" * 900),
    *(
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r\n",
        b"\0",
        b"[DONE]",
        b"data: ",
        b": x\n\n",
        b"event: error\n",
        b"id: 1\n",
    ),
)
"""Bytes that JSON values cannot express, or that frame events."""
PREFIX = b"data: "
Path = tuple[Any, ...]


def mutated(data: bytes, random: Random, *, as_json: bool, longest: int) -> bytes:
    """Return `data` with one to four changes; its first byte, which chooses the parser, seldom changes."""
    head, body = data[:1] or b"\0", data[1:]
    if not random.randrange(50):
        head = bytes([random.randrange(256)])
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        body = _json_changed(body, random) if as_json and random.random() < 0.85 else _changed(body, random)
    return (head + body)[:longest]


def _json_changed(body: bytes, random: Random) -> bytes:
    """Return a text with one change in one of its JSON values; other bytes change where there is none."""
    lines = body.split(b"\n")
    places = [place for place, line in enumerate(lines) if line.strip()]
    if not places:
        return _changed(body, random)
    place = random.choice(places)
    prefix = PREFIX if lines[place].startswith(PREFIX) else b""
    try:
        value = json.loads(lines[place].removeprefix(prefix))
        changed = json.dumps(_value_changed(value, random), separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return _changed(body, random)
    if not random.randrange(20):  # what no JSON value writes, in the place of a value
        changed = changed.replace(b"null", random.choice(TEXTS), 1)
    lines[place] = prefix + changed
    return b"\n".join(_lines_changed(lines, random) if not random.randrange(10) else lines)


def _lines_changed(lines: list[bytes], random: Random) -> list[bytes]:
    """Return lines of which one is repeated, removed or moved."""
    place, to = random.randrange(len(lines)), random.randrange(len(lines))
    line = lines[place] if random.randrange(2) else lines.pop(place)
    return [*lines[:to], line, *lines[to:]] if random.randrange(3) else lines


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path to each value in a JSON value, the value itself first.

    >>> list(paths({"a": [5]}))
    [(), ('a',), ('a', 0)]
    """
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from paths(inner, (*path, name))


def _at(value: Any, path: Path) -> Any:
    for name in path:
        value = value[name]
    return value


def _value_changed(value: Any, random: Random) -> Any:
    """Return a JSON value with one change; may change it in place."""
    found = list(paths(value))
    path = random.choice(found)
    if not path:
        return random.choice(VALUES)
    holder, name = _at(value, path[:-1]), path[-1]
    random.choice(CHANGES)(holder, name, lambda: _at(value, random.choice(found)), random)
    return value


def _replace(holder: Any, name: Any, _: Callable[[], Any], random: Random) -> None:
    holder[name] = random.choice(VALUES)


def _adjust(holder: Any, name: Any, _: Callable[[], Any], random: Random) -> None:
    """Change a value a little: a number by some, a text or a list by its length."""
    value = holder[name]
    if isinstance(value, bool) or value is None:
        holder[name] = not value
    elif isinstance(value, int | float):
        holder[name] = value + random.choice((-1, 1, 0.5, 256, 1 << 32))
    elif isinstance(value, str):
        cut = random.randrange(len(value) + 1)
        holder[name] = random.choice((value[:cut], value[cut:], value + value, value.upper()))
    elif isinstance(value, list):
        holder[name] = random.choice((value[:-1], value + value[:1], value * 2, [value]))
    else:
        holder[name] = random.choice(([value], {**value, "x": 1}, list(value), list(value.values())))


def _remove(holder: Any, name: Any, _: Callable[[], Any], random: Random) -> None:
    del random
    del holder[name]


def _copy(holder: Any, name: Any, other: Callable[[], Any], random: Random) -> None:
    """Put a value from elsewhere in this place."""
    del random
    holder[name] = orjson.loads(json.dumps(other()))


def _rename(holder: Any, name: Any, _: Callable[[], Any], random: Random) -> None:
    if isinstance(holder, dict):
        holder[random.choice((*holder, "type", "id", "index", "role"))] = holder.pop(name)


CHANGES = (_replace, _replace, _adjust, _adjust, _remove, _copy, _rename)


def _changed(body: bytes, random: Random) -> bytes:
    """Return bytes that are cut, changed, repeated, or have others inserted."""
    at = random.randrange(len(body) + 1)
    to = min(len(body), at + random.choice((1, 1, 2, 4, 8, 64)))
    random_bytes = random.randbytes(to - at)
    size = random.choice((1, 2, 4, 8))
    number = random.choice((0, 1, 2, 7, 255, 1 << 16, 1 << 31, 1 << 62)) & ((1 << 8 * size) - 1)
    return random.choice(
        (
            body[:at],
            body[:at] + body[to:],
            body[:at] + random_bytes + body[to:],
            body[:at] + number.to_bytes(size, "little") + body[at + size :],
            body[:at] + body[at:to] + body[at:],
            body[:at] + random.choice(TEXTS) + body[at:],
        )
    )
