"""A small tokenizer: special strings, a few merges, and an id for each other character."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import attrs

FIRST_MERGE = 50
FIRST_CHARACTER = 100


class _Numbers(dict[str, int]):
    """Ids by text. Each character gets its id when it is first met: tests encode millions."""

    def __missing__(self, character: str) -> int:
        number = self[character] = FIRST_CHARACTER + ord(character)
        return number


@attrs.frozen(slots=False)
class Tokenizer:
    """Encode greedily from the left: the longest special string, else the longest merge, else a character.

    A special string in a message becomes the special id, as Hugging Face tokenizers do it.

    Attributes:
        specials: Special strings, with ids from 1.
        merges: Texts of several characters that have an id of their own, from 50.

    >>> toy = Tokenizer(specials=("<|end|>",), merges=("ab",))
    >>> toy.encode("aba<|end|>") == [50, 197, 1]
    True
    >>> toy.decode([197, 198, 50, 1])
    'abab<|end|>'
    """

    specials: tuple[str, ...]
    merges: tuple[str, ...] = ()

    @cached_property
    def _pieces(self) -> re.Pattern[str]:
        longest_first = [
            *sorted(self.specials, key=len, reverse=True),
            *sorted(self.merges, key=len, reverse=True),
        ]
        return re.compile("|".join([*map(re.escape, longest_first), "."]), re.DOTALL)

    @cached_property
    def _named(self) -> dict[str, int]:
        merged = {text: FIRST_MERGE + index for index, text in enumerate(self.merges)}
        return merged | {text: 1 + index for index, text in enumerate(self.specials)}

    @cached_property
    def _numbers(self) -> _Numbers:
        return _Numbers(self._named)

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {number: text for text, number in self._named.items()}

    def _number(self, piece: str) -> int:
        return self._numbers[piece]

    def encode(self, text: str) -> list[int]:
        """Return the ids that this tokenizer writes for a text."""
        return list(map(self._numbers.__getitem__, self._pieces.findall(text)))

    def starts(self, text: str) -> list[int]:
        """Return where in `text` each id of `encode(text)` starts."""
        return [match.start() for match in self._pieces.finditer(text)]

    def encode_split(self, text: str, mask: int) -> list[int]:
        """Encode as a model may sample: bit n of `mask` writes the n-th merge in characters."""
        ids: list[int] = []
        for piece in self._pieces.findall(text):
            merged = len(piece) > 1 and piece not in self.specials
            ids.extend(map(self._number, piece) if merged and mask & 1 else [self._number(piece)])
            mask >>= merged
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of any ids, also of those that `encode` does not write."""
        return "".join(self._texts.get(number) or chr(number - FIRST_CHARACTER) for number in ids)
