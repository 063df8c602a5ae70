"""Check whether the text of an engine's answer is the text of its ids.

Engines leave special tokens out, cut a text at its stop, trim it, or write a part of a character in their own
way. None of that is a difference here: only what no such rule explains is one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from .text_stream import INCOMPLETE, Decode

if TYPE_CHECKING:  # an adapter that has no model folder loads no tokenizer library
    from tito_io.families.family import Family

OTHER_TEXT = "other-text"
"""Notice: the text that the engine sent is not that of the ids."""


@attrs.frozen
class Spelling:
    """How a vocabulary writes ids as text.

    Attributes:
        decode: Returns the text of ids, special tokens included.
        added: Matches the text of any token that was added to the vocabulary; engines show some of them.
        token: Returns an id's token; None for an id that the vocabulary does not have.
    """

    decode: Decode
    added: re.Pattern[str]
    token: Callable[[int], str | None]

    @classmethod
    def of(cls, family: Family) -> Spelling:
        """Return how the vocabulary of a model's folder writes ids."""
        added = (one.content for one in family.tokenizer.get_added_tokens_decoder().values())
        longest = sorted(filter(None, added), key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest)) or r"(?!)")
        return cls(family.decode, pattern, family.tokenizer.id_to_token)

    def other_text(self, ids: Sequence[int], text: str, least: int) -> int | None:
        """Return the place of the first id whose text is another one; None where all may be theirs.

        The text has to hold that of the first `least` ids; the others may be missing, as what follows a stop.

        >>> letters = Spelling(lambda ids: "".join(map(chr, ids)), re.compile("E"), chr)
        >>> letters.other_text([97, 98, 69], " a b", 3), letters.other_text([97, 98, 69], "aE", 1)
        (None, None)
        >>> letters.other_text([97, 98, 69], "ax", 3), letters.other_text([97, 98, 69], "a", 3)
        (1, 1)
        """
        if any(self._fits(ids, text, least, form) for form in (self._without_added, _dense)):
            return None
        if any(self.token(index) is None for index in ids):  # engines write them as they like
            return None
        theirs = self._without_added(text)

        def is_elsewhere(count: int) -> bool:
            return not theirs.startswith(self._certain(ids[:count]))

        return bisect_left(range(1, len(ids) + 1), 1, key=is_elsewhere)

    def _fits(self, ids: Sequence[int], text: str, least: int, form: Callable[[str], str]) -> bool:
        """Return whether a text is that of ids in one form, as far as no part of a character stands in it."""
        ours, theirs = form(self.decode(ids)), form(text)
        if ours == theirs:
            return True
        broken = [place for one in (ours, theirs) if (place := one.find(INCOMPLETE)) >= 0]
        if broken:
            return ours[: min(broken)].startswith(theirs[: min(broken)])
        needed = form(self.decode(ids[:least])).rstrip(INCOMPLETE)
        return ours.startswith(theirs) and theirs.startswith(needed)

    def _certain(self, ids: Sequence[int]) -> str:
        return self._without_added(self.decode(ids)).partition(INCOMPLETE)[0]

    def _without_added(self, text: str) -> str:
        return _dense(self.added.sub("", text))


def _dense(text: str) -> str:
    """Return a text without white space, which engines trim, and tokenizers put before the first word."""
    return "".join(text.split())
