"""Encode texts that repeat in pieces: each piece that begins with an added token is encoded once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any, Self

from attrs import field, frozen
from tokenizers import Tokenizer

from .tokenizer import encoded

Offset = tuple[int, int]
REMEMBERED = 1 << 14
"""Pieces, and texts, that are remembered."""


@frozen
class EncodedText:
    """The ids of a text, and the characters that each covers.

    Attributes:
        ids: The ids.
        offsets: Where the characters of each id begin and end.
    """

    ids: tuple[int, ...]
    offsets: tuple[Offset, ...]


@frozen(eq=False)
class ChunkEncoder:
    """Encodes as its tokenizer does, and each piece of text once.

    The library first looks for added tokens, and encodes the text between them separately. So a text may be
    cut before such a token. It is not cut behind one, because what begins a text may be encoded in another
    way.

    Attributes:
        tokenizer: The tokenizer. It must not change.
        added: Finds the added tokens in a text; None without any.
        borders: The added tokens before which a text may be cut.
    """

    tokenizer: Tokenizer
    added: re.Pattern[str] | None
    borders: frozenset[str]
    _pieces: dict[str, EncodedText] = field(factory=dict, init=False, repr=False)
    _texts: dict[str, tuple[int, ...]] = field(factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """Return the encoder of a tokenizer."""
        decoder = tokenizer.get_added_tokens_decoder().values()
        found = [token for token in decoder if not token.normalized]  # others are found in what is left
        # A token may take the white space beside it with it, from a piece that a cut would end or begin.
        takes = any(token.rstrip for token in found)
        borders = [
            token.content
            for token in found
            if not (token.single_word or token.lstrip)
            and not (token.special and tokenizer.encode_special_tokens)
            and not (takes and token.content[:1].isspace())
        ]
        added = re.compile(longest_of(token.content for token in found)) if borders else None
        return cls(tokenizer, added, frozenset(borders))

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text; raises `InputError` where it has none."""
        found = self._texts.get(text)
        if found is None:
            pieces = (self._piece(piece).ids for piece in self._split(text))
            found = _remembered(self._texts, text, tuple(chain.from_iterable(pieces)))
        return found

    def encoded(self, text: str) -> EncodedText:
        """Return the ids of a text with their places; raises `InputError` where it has none."""
        offsets: list[Offset] = []
        place = 0
        for piece in self._split(text):
            offsets += [(start + place, end + place) for start, end in self._piece(piece).offsets]
            place += len(piece)
        return EncodedText(self.ids(text), tuple(offsets))

    def _split(self, text: str) -> list[str]:
        matches = () if self.added is None else self.added.finditer(text)
        places = [match.start() for match in matches if match.group() in self.borders]
        return [text[start:end] for start, end in pairwise((0, *places, len(text))) if start < end]

    def _piece(self, text: str) -> EncodedText:
        found = self._pieces.get(text)
        if found is None:
            encoding = encoded(self.tokenizer, text)
            found = EncodedText(tuple(encoding.ids), tuple(encoding.offsets))
            _remembered(self._pieces, text, found)
        return found


def _remembered(known: dict[str, Any], text: str, found: Any) -> Any:
    if len(known) >= REMEMBERED:
        known.clear()
    known[text] = found
    return found


def longest_of(words: Iterable[str]) -> str:
    """Return a pattern that matches the longest of `words` at a place, as the library does.

    >>> longest_of(["<a>", "<ab>", "<a>b"])
    '<a(?:>(?:b)?|b>)'
    """
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _pattern(tree)


def _pattern(tree: dict[str, Any]) -> str:
    """Return the pattern of what may follow; thousands of words side by side would be tried one by one."""
    branches = [re.escape(letter) + _pattern(rest) for letter, rest in tree.items() if letter]
    if len(branches) == 1 and "" not in tree:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' * ('' in tree)}" if branches else ""
