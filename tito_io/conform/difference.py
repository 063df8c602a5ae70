"""Show where ids differ from the right ones, token by token and side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from .toy_tokenizer import ToyTokenizer

BEFORE, AFTER = 3, 6
"""Tokens that are shown before the first difference, and from there on."""
WIDTH = 24
"""The most characters of a token that are shown."""


@attrs.frozen
class Difference:
    """Ids that differ from the right ones.

    Attributes:
        right: The right ids.
        given: The ids that were given.
        tokenizer: What decodes them.
        place: How many ids at the beginning are equal.

    >>> print(Difference((98, 97, 100), (98, 97), ToyTokenizer({}, {})))
       position  right                         given
              0  98 'b'                        98 'b'
              1  97 'a'                        97 'a'
    >         2  100 'd'                       (the end)
    """

    right: tuple[int, ...]
    given: tuple[int, ...]
    tokenizer: ToyTokenizer
    place: int = attrs.field(init=False)

    @place.default
    def _place(self) -> int:
        pairs = enumerate(zip(self.right, self.given, strict=False))
        return next((at for at, (one, other) in pairs if one != other), min(len(self.right), len(self.given)))

    @property
    def summary(self) -> str:
        """The first difference in a line."""
        right, given = self._token(self.right, self.place), self._token(self.given, self.place)
        return f"position {self.place} of {len(self.right)}: {right} is right, given was {given}"

    @property
    def kind(self) -> str:
        """The first difference.

        >>> toy = ToyTokenizer({"an": 256}, {"<end>": 257})
        >>> Difference((97, 110, 257), (256, 257), toy).kind, Difference((98, 257), (98, 97), toy).kind
        ('the same text has other ids', "the special token '<end>' is missing")
        >>> Difference((97,), (97, 98), toy).kind, Difference((97, 98), (97,), toy).kind
        ('more ids follow', 'the end is missing')
        >>> Difference((97,), (98,), toy).kind
        'another text'
        """
        right, given = self.right[self.place :], self.given[self.place :]
        if not right or not given:
            return "the end is missing" if right else "more ids follow"
        if self._same_text(right, given):
            return "the same text has other ids"
        special = {index: text for text, index in self.tokenizer.special.items()}.get(right[0])
        return "another text" if special is None else f"the special token {special!r} is missing"

    def _same_text(self, right: Sequence[int], given: Sequence[int]) -> bool:
        """Return whether both texts go on with the longer one of the two tokens that differ."""
        longer = max((self.tokenizer.decode([ids[0]]) for ids in (right, given)), key=len)
        most = len(longer.encode())  # no text of so many bytes has more ids
        return all(self.tokenizer.decode(list(ids[:most])).startswith(longer) for ids in (right, given))

    def rows(self) -> Iterator[tuple[int, str, str]]:
        """Yield positions around the first difference with the right token and the given one."""
        end = min(self.place + AFTER, max(len(self.right), len(self.given)))
        for at in range(max(self.place - BEFORE, 0), end):
            yield at, self._token(self.right, at), self._token(self.given, at)

    def _token(self, ids: Sequence[int], at: int) -> str:
        if at >= len(ids):
            return "(the end)" if at == len(ids) else ""
        text = repr(self.tokenizer.decode([ids[at]]))
        return f"{ids[at]} {text if len(text) <= WIDTH else text[: WIDTH - 4] + '...' + text[-1]}"

    def __str__(self) -> str:
        lines = [f"   position  {'right':<28}  given"]
        for at, right, given in self.rows():
            lines.append(f"{'>' if at == self.place else ' '}{at:10}  {right:<28}  {given}")
        return "\n".join(lines)
