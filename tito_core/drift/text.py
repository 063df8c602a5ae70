"""The text on both sides of a place where ids differ, cut to what really differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import attrs

from .diff import Hunk, Packed, trimmed

Text: TypeAlias = Callable[[Sequence[int]], str]

OPEN = "\ufffd"
"""What decoders write for a character of which bytes are missing."""
LONGEST = 4
"""Bytes of a character."""
AROUND = 8
"""Ids of context that are decoded with a place: characters may be spelled in several ids."""


@attrs.frozen
class Differing:
    """Two texts without what both begin and end with."""

    used: str
    rendered: str
    respelled: bool
    """Whether the whole text of a first, or of a last, differing id is on both sides."""

    @property
    def same(self) -> bool:
        """Whether no text differs."""
        return not self.used and not self.rendered


def differing(text: Callable[[Sequence[int]], str], used: Packed, rendered: Packed, hunk: Hunk) -> Differing:
    """Decode a place and its context and cut off what is the same.

    >>> from array import array
    >>> letters = {1: "a", 2: "b", 3: "ab", 4: "c"}
    >>> def text(ids):
    ...     return "".join(letters[number] for number in ids)
    >>> differing(text, array("I", [4, 1, 2, 4]), array("I", [4, 3, 4]), Hunk(1, 3, 1, 2)).same
    True
    >>> differing(text, array("I", [1, 2, 4]), array("I", [3]), Hunk(0, 3, 0, 1))
    Differing(used='c', rendered='', respelled=True)
    """
    before = used[max(hunk.start - AROUND, 0) : hunk.start]
    after = used[hunk.stop : hunk.stop + AROUND]
    after = after if rendered[hunk.end : hunk.end + AROUND] == after else after[:0]
    ours, theirs = used[hunk.start : hunk.stop], rendered[hunk.begin : hunk.end]
    left, right = text([*before, *ours, *after]), text([*before, *theirs, *after])
    first, last = _affixes(left, right, len(text(before)), len(text([*before, *ours[:1]])))
    if not ours or not theirs:
        first = min(len(text(before)), len(left), len(right))
        last = min(len(left), len(right)) - first
    firsts = [len(text([*before, *side[:1]])) for side in (ours, theirs)]
    lasts = [len(text([*side[-1:], *after])) for side in (ours, theirs)]
    whole = bool(ours and theirs) and (max(firsts) <= first or max(lasts) <= last)
    return Differing(left[first : len(left) - last], right[first : len(right) - last], whole)


def _affixes(left: str, right: str, before: int, border: int) -> tuple[int, int]:
    """Return how many characters are the same at the beginning, and at the end.

    Where that would begin inside the first id, the end goes first: `<tool` is no `<` and a lost `think><`.
    """
    first = _alike(left, right)
    if before < first < border:
        last = _alike(left[before:][::-1], right[before:][::-1])
        return _alike(left[: len(left) - last], right[: len(right) - last]), last
    return first, _alike(left[first:][::-1], right[first:][::-1])


def peeled(text: Text, used: Packed, rendered: Packed, hunk: Hunk) -> list[Hunk]:
    """Return a hunk in pieces: what begins with the same text, what differs, what ends with the same text.

    They are parted where both sides have a token's border, and left whole where borders cannot be told.

    >>> from array import array
    >>> letters = {1: "a", 2: "b", 3: "ab", 4: "c"}
    >>> def text(ids):
    ...     return "".join(letters[number] for number in ids)
    >>> peeled(text, array("I", [4, 1, 2]), array("I", [3]), Hunk(0, 3, 0, 1))
    [Hunk(start=0, stop=1, begin=0, end=0), Hunk(start=1, stop=3, begin=0, end=1)]
    """
    sides = _sides(text, used, rendered, hunk)
    if sides is None:
        return [hunk]
    left, right = sides
    first = _shared(left.borders, right.borders, _alike(left.text, right.text))
    room = min(len(left.text), len(right.text)) - first
    same = min(_alike(left.text[::-1], right.text[::-1]), room)
    last = _shared(left.from_end, right.from_end, same)
    a, c = hunk.start + left.borders[first], hunk.begin + right.borders[first]
    b, d = hunk.start + left.from_end[last], hunk.begin + right.from_end[last]
    parts = Hunk(hunk.start, a, hunk.begin, c), Hunk(a, b, c, d), Hunk(b, hunk.stop, d, hunk.end)
    found = [trimmed(used, rendered, part) for part in parts]
    return [part for part in found if part.start < part.stop or part.begin < part.end]


def respelled(text: Text, used: Packed, rendered: Packed, hunk: Hunk) -> list[Hunk]:
    """Return the pieces of a hunk of one text in which ids differ: the same id for the same letters is none.

    >>> from array import array
    >>> letters = {1: "a", 2: "b", 3: "ab", 4: "c"}
    >>> def text(ids):
    ...     return "".join(letters[number] for number in ids)
    >>> respelled(text, array("I", [1, 2, 4, 1, 2]), array("I", [3, 4, 3]), Hunk(0, 5, 0, 3))
    [Hunk(start=0, stop=2, begin=0, end=1), Hunk(start=3, stop=5, begin=2, end=3)]
    """
    sides = _sides(text, used, rendered, hunk)
    if sides is None:
        return [hunk]
    left, right = sides
    shared = [place for place in left.borders if place in right.borders]
    found = [
        Hunk(
            hunk.start + left.borders[before],
            hunk.start + left.borders[after],
            hunk.begin + right.borders[before],
            hunk.begin + right.borders[after],
        )
        for before, after in pairwise(shared)
    ]
    return [one for one in found if used[one.start : one.stop] != rendered[one.begin : one.end]]


@attrs.frozen
class Side:
    """The text of some ids, and how many of them stand before each border, by the letters before it."""

    text: str
    borders: dict[int, int]

    @property
    def from_end(self) -> dict[int, int]:
        """The same by the letters after it."""
        return {len(self.text) - place: count for place, count in self.borders.items()}


def _sides(text: Text, used: Packed, rendered: Packed, hunk: Hunk) -> tuple[Side, Side] | None:
    """Return both sides of a hunk; None where borders cannot be told."""
    before = used[max(hunk.start - 1, 0) : hunk.start].tolist()
    left = _side(text, before, used[hunk.start : hunk.stop].tolist())
    right = _side(text, before, rendered[hunk.begin : hunk.end].tolist())
    return None if left is None or right is None else (left, right)


def _side(text: Text, before: list[int], ids: list[int]) -> Side | None:
    """Find the borders: an id after which no character is open. A character is four ids at most."""
    known, place, borders = len(text(before)), 0, {0: 0}
    held: list[int] = []
    for count, number in enumerate(ids, 1):
        held.append(number)
        said = text([*before, *held])[known:]
        if not said.endswith(OPEN) or len(held) == LONGEST or count == len(ids):
            place, held = place + len(said), []
            borders[place] = count
    whole = text([*before, *ids])[known:]
    return Side(whole, borders) if place == len(whole) and borders[place] == len(ids) else None


def _shared(ours: dict[int, int], theirs: dict[int, int], most: int) -> int:
    """Return the last border of both that lies in the same text."""
    return max((place for place in ours if place <= most and place in theirs), default=0)


def _alike(left: str, right: str) -> int:
    """Return how many characters two texts begin with together."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
