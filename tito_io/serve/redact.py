"""Repeat an engine's own words about a request to its client: short, and without the conversation.

Engines quote in an error what they could not read, which may be any part of a message. So every run of 12 or
more characters that the words and the conversation share is removed from the words. Upper case, white
space and escapes (as Python and JSON write them) make no difference. If the conversation is too long to
search quickly, all of the engine's words are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from tito_io.engines.errors import Complaint
from tito_io.engines.protocol import AuthenticationError, EngineError

LONGEST = 300
"""The most characters that are repeated."""
MOST = 300_000
"""The most characters and values that are searched: some 0.1 s, in which all other requests wait."""
SAME = 12
"""So many characters in a row, white space aside, in the words and in the conversation, are a quotation."""
HALF = (SAME + 1) // 2
"""However a text is cut into pieces of this length, each quotation in it has one of them whole."""
ESCAPED = re.compile(
    r"\\+(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\+u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|U(?P<U>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|u(?P<u>[0-9a-fA-F]{4})|x(?P<x>[0-9a-fA-F]{2})|[abfnrtv])?"
)
"""An escaped character, however often it was escaped; a backslash alone escapes what follows."""
PIECE = re.compile(f"{ESCAPED.pattern}|.", re.DOTALL)
GAP = "[...]"
TEXTS = ("messages", "tools", "input", "system", "instructions", "metadata")
"""The fields of a request that hold the conversation."""
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
"""Keys of the APIs and of JSON Schema: a complaint that names one repeats nothing of the conversation."""


def engine_words(error: Exception, body: Mapping[str, Any] | None) -> str:
    """Return the engine's words as the end of a sentence; "" where it has no words for a client.

    What an engine says of credentials concerns the gateway alone. `body` is the client's request.
    """
    if body is None or not isinstance(error, EngineError) or isinstance(error, AuthenticationError):
        return ""
    message = Complaint.of(None if error.answer is None else error.answer.body).message
    words = " ".join(message[: 10 * LONGEST].split())[:LONGEST]
    conversation = _conversation(body) if words else None
    shown = "" if conversation is None else redact(words, conversation)
    return f"; it says: {shown}" if shown.replace(GAP, "").strip() else ""


def _conversation(body: Mapping[str, Any]) -> str | None:
    """Return all texts of a request; None where that is too much to search."""
    parts, room = [], MOST
    for text in texts([body.get(name) for name in TEXTS]):
        room -= len(text) + 1
        if room < 0:
            return None
        parts.append(text)
    return "\0".join(parts)


def redact(words: str, conversation: str) -> str:
    r"""Return words without what they repeat of a conversation.

    >>> redact(r"cannot read 'The rain in\nSpain stays' here", "See: the rain in Spain stays mainly")
    "cannot read '[...]' here"
    """
    marks = bytearray(len(words))
    spread = [(letter, piece.span()) for piece in PIECE.finditer(words) for letter in letters(piece.group())]
    plain = "".join(letter for letter, _ in spread)
    shared = _shared(plain, letters(conversation))
    for place in range(len(spread)):
        if plain[place : place + SAME] in shared:
            start, stop = spread[place][1][0], spread[place + SAME - 1][1][1]
            marks[start:stop] = b"\x01" * (stop - start)
    runs = groupby(zip(words, marks, strict=True), itemgetter(1))
    return "".join(GAP if mark else "".join(letter for letter, _ in run) for mark, run in runs)


def _shared(short: str, long: str) -> set[str]:
    """Return the quotations that two texts share; linear in the long one, whatever it contains.

    >>> sorted(_shared("0123456789abc", "see 123456789abcd"))
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
    r"""Return a text without white space, escapes and upper case, for comparing.

    >>> letters(r"Caf\u00e9\n \"AU\" \ud83d\ude00 lait")
    'café"au"😀lait'
    """
    return "".join(ESCAPED.sub(_unescaped, text).casefold().split())


def _unescaped(escape: re.Match[str]) -> str:
    if escape["high"]:
        return chr(0x10000 + (int(escape["high"], 16) - 0xD800) * 0x400 + int(escape["low"], 16) - 0xDC00)
    code = escape["u"] or escape["U"] or escape["x"]
    return "" if code is None else chr(int(code, 16))


def texts(value: Any) -> Iterator[str]:
    """Yield the text of each value in JSON data, numbers too, and of each uncommon key; "" for the rest.

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
        number = isinstance(one, int | float) and not isinstance(one, bool)
        yield str(one) if number or isinstance(one, str) else ""
