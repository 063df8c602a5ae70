"""Tokenizers that can be looked into: which id stands for which characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Token = tuple[int, int, int]
"""An id, and the half-open range of characters that it writes; bytes of one character share its range."""


@dataclass(frozen=True)
class Tokenizer:
    """Special strings are one id each; other text is characters, or bytes if `bytewise`, which merge.

    Without `ranked` the longest merge is taken from the left, with it the first one of the list, as in BPE.
    """

    specials: tuple[str, ...]
    merges: tuple[str, ...] = ()
    ranked: bool = False
    bytewise: bool = False

    def tokens(self, text: str) -> list[Token]:
        """Return the ids of a text, each with its characters."""
        merges = sorted(() if self.ranked else self.merges, key=len, reverse=True)
        apart = re.split(f"({'|'.join(map(re.escape, self.specials))})", text) if self.specials else [text]
        one = "|".join([*map(re.escape, merges), "."])
        pieces = [
            p
            for part in apart
            for p in ([part] if part in self.specials else re.findall(one, part, re.DOTALL))
        ]
        known = {text: number for number, text in self.texts().items()}
        found, start = list[Token](), 0
        for piece in self.ranked_merges(pieces) if self.ranked else pieces:
            units = piece.encode() if self.bytewise else map(ord, piece)
            numbers = [known[piece]] if piece in known else [1000 + unit for unit in units]
            found += [(number, start, start + len(piece)) for number in numbers]
            start += len(piece)
        return found

    def ranked_merges(self, pieces: list[str]) -> list[str]:
        """Merge neighbours, the first merge of the list first."""
        for merge in self.merges:
            for place in range(len(pieces) - 1, 0, -1):
                if "".join(pieces[place - 1 : place + 1]) == merge:
                    pieces[place - 1 : place + 1] = [merge]
        return pieces

    def texts(self) -> dict[int, str]:
        """Return what the ids of special strings and of merges write."""
        return dict([*enumerate(self.specials, 1), *enumerate(self.merges, 50)])

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return [number for number, _, _ in self.tokens(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return what ids write, for people to read."""
        known = self.texts()
        return "".join(known.get(i) or (chr(i - 1000) if i >= 1000 else f"<{i}>") for i in ids)
