"""An engine's own words about a request, for whoever sent it: short, and without the conversation.

Engines repeat in a complaint what they stumbled over, which may be anything that was said. Whatever stands in
the words and in the conversation for more than a few characters on end is left out of the words, also where
the engine wrote it in other letters' cases, with other white space, or with escapes, as Python and JSON do.
A conversation that would take long to look through has none of the engine's words told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tito_io.engines.errors import Complaint
from tito_io.engines.protocol import AuthenticationError, EngineError

LONGEST = 300
"""The most characters that are repeated."""
MOST = 300_000
"""The most characters and values that are looked through, which holds up all other requests: some 0.1 s."""
SAME = 12
"""So many characters on end beside white space, in the words and in the conversation, are a quotation."""
HALF = (SAME + 1) // 2
"""Wherever a text is cut into pieces of this length, each quotation in it has one of them whole."""
ESCAPED = re.compile(
    r"\\+(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\+u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|U(?P<U>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|u(?P<u>[0-9a-fA-F]{4})|x(?P<x>[0-9a-fA-F]{2})|[abfnrtv])?"
)
"""A character as it is escaped, however often; a backslash by itself escapes what follows."""
PIECE = re.compile(f"{ESCAPED.pattern}|.", re.DOTALL)
GAP = "[...]"
TEXTS = ("messages", "tools", "input", "system", "instructions", "metadata")
"""Where a request holds what a conversation says."""
COMMON = frozenset(
    (
        "additionalProperties",
        "cache_control",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "function_call",
        "input_schema",
        "maxProperties",
        "minProperties",
        "patternProperties",
        "propertyNames",
        "reasoning_content",
        "tool_call_id",
        "unevaluatedProperties",
    )
)
"""Keys that the APIs and JSON Schema have: a complaint that names one repeats nothing that was said."""


def quoted(error: Exception, body: Mapping[str, Any] | None) -> str:
    """Return the engine's words as the end of a sentence; nothing where it has none, or nobody may see them.

    What it says of credentials is the gateway's own affair.
    """
    if body is None or not isinstance(error, EngineError) or isinstance(error, AuthenticationError):
        return ""
    message = Complaint.of(None if error.answer is None else error.answer.body).message
    words = " ".join(message[: 10 * LONGEST].split())[:LONGEST]
    said = _said(body) if words else None
    shown = "" if said is None else without(words, said)
    return f"; it says: {shown}" if shown.replace(GAP, "").strip() else ""


def _said(body: Mapping[str, Any]) -> str | None:
    """Return what a request says; None where that is too much."""
    found, room = [], MOST
    for text in texts([body.get(name) for name in TEXTS]):
        room -= len(text) + 1
        if room < 0:
            return None
        found.append(text)
    return "\0".join(found)


def without(words: str, said: str) -> str:
    r"""Return words without what they repeat of what was said.

    >>> without(r"cannot read 'The rain in\nSpain stays' here", "See: the rain in Spain stays mainly")
    "cannot read '[...]' here"
    """
    found = bytearray(len(words))
    spread = [(letter, piece.span()) for piece in PIECE.finditer(words) for letter in letters(piece.group())]
    repeated = "".join(letter for letter, _ in spread)
    both = _in_both(repeated, letters(said))
    for place in range(len(spread) - SAME + 1):
        if repeated[place : place + SAME] in both:
            start, stop = spread[place][1][0], spread[place + SAME - 1][1][1]
            found[start:stop] = b"\x01" * (stop - start)
    return "".join(_kept(words, found))


def _in_both(short: str, long: str) -> set[str]:
    """Return the quotations that two texts share; linear in the long one, whatever stands in it.

    >>> sorted(_in_both("0123456789abc", "see 123456789abcd"))
    ['123456789abc']
    """
    halves, wholes = set(_runs(short, HALF)), set(_runs(short, SAME))
    near = {
        long[max(place - HALF + 1, 0) : place + SAME]
        for place in range(0, len(long), HALF)
        if long[place : place + HALF] in halves
    }
    return {whole for part in near for whole in _runs(part, SAME) if whole in wholes}


def _runs(text: str, length: int) -> Iterator[str]:
    """Yield all parts of a length."""
    return (text[place : place + length] for place in range(len(text) - length + 1))


def letters(text: str) -> str:
    r"""Return what is compared of a text: no white space, no escapes, no upper case.

    >>> letters(r"Caf\u00e9\n \"AU\" \ud83d\ude00 lait")
    'café"au"😀lait'
    """
    return "".join(ESCAPED.sub(_meant, text).casefold().split())


def _meant(escape: re.Match[str]) -> str:
    if escape["high"]:
        return chr(0x10000 + (int(escape["high"], 16) - 0xD800) * 0x400 + int(escape["low"], 16) - 0xDC00)
    code = escape["u"] or escape["U"] or escape["x"]
    return "" if code is None else chr(int(code, 16))


def _kept(words: str, repeated: bytearray) -> Iterator[str]:
    before = 0
    for letter, mark in zip(words, repeated, strict=True):
        if mark and not before:
            yield GAP
        if not mark:
            yield letter
        before = mark


def texts(value: Any) -> Iterator[str]:
    """Yield the text of each value in JSON data, of numbers too, and the keys of its own; "" of others.

    >>> sorted(texts({"tool_call_id": "a", "my_key": [1.5, True]}))
    ['', '', '', '1.5', 'a', 'my_key']
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting.extend(key for key in one if key not in COMMON)
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        yield _text(one)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
