"""The toy tokenizer of the vectors: bytes, a few longer tokens, and special tokens; greedy from the left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

BYTES = 256


@attrs.frozen(slots=False)
class ToyTokenizer:
    """A tokenizer that a table and two rules specify.

    Each special token in the text is found first: the leftmost, of those at one place the longest. The text
    between is read from the left: the longest token that it continues with, else its next byte of UTF-8.

    Attributes:
        tokens: Ids of tokens of several bytes, by their text. Ids below 256 are the bytes themselves.
        special: Ids of special tokens, by their text.

    >>> toy = ToyTokenizer({"an": 256, "ban": 257}, {"<end>": 258})
    >>> toy.encode("banana<end>")
    [257, 256, 97, 258]
    >>> toy.decode([98, 97, 110, 256, 97, 258])
    'banana<end>'
    """

    tokens: Mapping[str, int]
    special: Mapping[str, int]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> ToyTokenizer:
        """Return the tokenizer in a vector's `tokenizer`."""
        return cls(data["tokens"], data["special"])

    @cached_property
    def _cuts(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self.special, key=len, reverse=True))) or r"(?!)")

    @cached_property
    def _pieces(self) -> re.Pattern[str]:
        longest_first = sorted(self.tokens, key=len, reverse=True)
        return re.compile("|".join([*map(re.escape, longest_first), "."]), re.DOTALL)

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        named = {number: text.encode() for text, number in {**self.tokens, **self.special}.items()}
        return {number: bytes([number]) for number in range(BYTES)} | named

    def encode(self, text: str) -> list[int]:
        """Return the ids that the tokenizer itself writes."""
        ids: list[int] = []
        place = 0
        for match in self._cuts.finditer(text):
            ids += [*self._plain(text[place : match.start()]), self.special[match[0]]]
            place = match.end()
        return [*ids, *self._plain(text[place:])]

    def _plain(self, text: str) -> Iterator[int]:
        for piece in self._pieces.findall(text):
            if piece in self.tokens:
                yield self.tokens[piece]
            else:
                yield from piece.encode()

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; what is not UTF-8, and what is no id, becomes U+FFFD."""
        return b"".join(self._bytes.get(number, b"\xff") for number in ids).decode(errors="replace")

    def bytes_of(self, number: int) -> bytes:
        """Return the bytes of an id of the vocabulary."""
        return self._bytes[number]
