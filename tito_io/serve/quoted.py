"""An engine's own words about a request, for whoever sent it: short, and without the conversation.

Engines repeat in a complaint what they stumbled over, which may be anything that was said. Whatever stands in
the words and in the conversation for more than a few characters on end is left out of the words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tito_io.engines.faults import Complaint
from tito_io.engines.protocol import AuthenticationError, EngineError

LONGEST = 300
"""The most characters that are repeated."""
SAME = 16
"""So many characters on end, in the words and in the conversation, are a quotation."""
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
    """Return words without what they repeat of what was said.

    >>> without("cannot read 'The rain in Spain stays' here", "See: The rain in Spain stays mainly")
    "cannot read '[...]' here"
    """
    found = bytearray(len(words))
    for place in range(len(words) - SAME + 1):
        if words[place : place + SAME] in said:
            found[place : place + SAME] = b"\x01" * SAME
    return "".join(_kept(words, found))


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
