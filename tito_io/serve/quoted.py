"""An engine's own words about a request, for whoever sent it: short, and without the conversation.

Engines repeat in a complaint what they stumbled over, which may be anything that was said. Whatever stands in
the words and in the conversation for more than a few characters on end is left out of the words, also where
the engine wrote it in other letters' cases, with other white space, or with escapes, as Python and JSON do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tito_io.engines.faults import Complaint
from tito_io.engines.protocol import AuthenticationError, EngineError

LONGEST = 300
"""The most characters that are repeated."""
SAME = 12
"""So many characters on end beside white space, in the words and in the conversation, are a quotation."""
ESCAPED = re.compile(r"\\+(?:u(?P<u>[0-9a-fA-F]{4})|x(?P<x>[0-9a-fA-F]{2})|[abfnrtv])?")
"""A character as it is escaped, however often; a backslash by itself escapes what follows."""
PIECE = re.compile(f"{ESCAPED.pattern}|.", re.DOTALL)
GAP = "[...]"
TEXTS = ("messages", "tools", "input", "system", "instructions", "metadata")
"""Where a request holds what a conversation says."""


def quoted(error: Exception, body: Mapping[str, Any] | None) -> str:
    """Return the engine's words as the end of a sentence; nothing where it has none, or nobody may see them.

    What it says of credentials is the gateway's own affair.
    """
    if body is None or not isinstance(error, EngineError) or isinstance(error, AuthenticationError):
        return ""
    words = " ".join(Complaint.of(None if error.answer is None else error.answer.body).message.split())
    said = "\0".join(texts({name: body.get(name) for name in TEXTS}))
    shown = without(words[:LONGEST], said)
    return f"; it says: {shown}" if shown.replace(GAP, "").strip() else ""


def without(words: str, said: str) -> str:
    r"""Return words without what they repeat of what was said.

    >>> without(r"cannot read 'The rain in\nSpain stays' here", "See: the rain in Spain stays mainly")
    "cannot read '[...]' here"
    """
    spoken, found = letters(said), bytearray(len(words))
    spread = [(letter, piece.span()) for piece in PIECE.finditer(words) for letter in letters(piece.group())]
    repeated = "".join(letter for letter, _ in spread)
    for place in range(len(spread) - SAME + 1):
        if repeated[place : place + SAME] in spoken:
            start, stop = spread[place][1][0], spread[place + SAME - 1][1][1]
            found[start:stop] = b"\x01" * (stop - start)
    return "".join(_kept(words, found))


def letters(text: str) -> str:
    r"""Return what is compared of a text: no white space, no escapes, no upper case.

    >>> letters(r"Caf\u00e9\n \"AU\" lait")
    'café"au"lait'
    """
    return "".join(ESCAPED.sub(_meant, text).casefold().split())


def _meant(escape: re.Match[str]) -> str:
    code = escape["u"] or escape["x"]
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
    """Yield all texts in JSON data, their white space as in one line."""
    if isinstance(value, str):
        yield " ".join(value.split())
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)
