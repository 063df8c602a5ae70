"""A stretch of text with the way in which it becomes ids."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from attrs import frozen

from .vocabulary import Vocabulary


@frozen
class Piece:
    """Text that becomes ids together with its neighbours, or letter by letter like ordinary text."""

    text: str
    spelled: bool = False
    """Whether a tag or a special token in it is spelled out with ordinary ids."""


def ids_of(pieces: Iterable[Piece], words: Vocabulary) -> list[int]:
    """Return the ids; neighbours that are not spelled out are encoded as one text, as a template's are."""
    found: list[int] = []
    for spelled, group in groupby(pieces, lambda piece: piece.spelled):
        text = "".join(piece.text for piece in group)
        found += words.spelled(text) if spelled else words.encode(text)
    return found
