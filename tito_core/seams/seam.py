"""Locate where the template's text after an assistant turn begins.

Only ids come back, so the place is found by difference: the same conversation is rendered with a short text
in the turn and with a longer one. The longer render must be the shorter one with ids inserted at a single
place. Then the text occurs once, nothing else was derived from it, and no id spans the place. Whatever the
shorter render has after that place, the template wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

SHORT = "Zephyr"
LONGER = "Zephyr more"
"""The short text and more. The space begins a new token in every tokenizer that splits words."""
OTHER = "4096"
"""A text that shares no character with the short one."""


@attrs.frozen
class Seam:
    """A render, and the place in it where an assistant's own text ends.

    Attributes:
        ids: The render.
        place: Position of the first id after the text.
    """

    ids: tuple[int, ...]
    place: int

    @property
    def tail(self) -> tuple[int, ...]:
        """All ids after the text."""
        return self.ids[self.place :]

    def ends(self, ids: Sequence[int], cut: int = 0) -> bool:
        """Return whether another render ends with the tail from `cut` on, and with the id before it.

        The id before it shows that no merge reaches across the place.
        """
        end = self.ids[self.place + cut - 1 :]
        return tuple(ids[-len(end) :]) == end


def find_seam(short: Sequence[int], longer: Sequence[int]) -> Seam | None:
    """Return the seam of `short`, or None if its text was lost, repeated, measured or merged.

    >>> find_seam([1, 50, 9, 2], [1, 50, 51, 9, 2])
    Seam(ids=(1, 50, 9, 2), place=2)
    >>> find_seam([1, 9, 2], [1, 9, 2]) is None                          # the template dropped the text
    True
    >>> find_seam([1, 50, 9, 50, 2], [1, 50, 51, 9, 50, 51, 2]) is None  # it wrote the text twice
    True
    >>> find_seam([1, 59, 2], [1, 50, 51, 9, 2]) is None                 # 50 and 9 merged to 59
    True
    """
    place = common_prefix(short, longer)
    tail = list(short[place:])
    whole = len(longer) > len(short) and list(longer[len(longer) - len(tail) :]) == tail
    return Seam(tuple(short), place) if whole and place else None


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many ids two sequences share at their beginning.

    >>> common_prefix([1, 2, 3], [1, 2, 4])
    2
    """
    count = 0
    for ours, theirs in zip(first, second, strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def after(text: Sequence[int], ids: Sequence[int]) -> tuple[int, ...] | None:
    """Return the ids after `text` in `ids`, or None if `text` does not occur exactly once.

    >>> after([5, 6], [1, 5, 6, 2]), after([5], [5, 1, 5]) is None
    ((2,), True)
    """
    run, whole = tuple(text), tuple(ids)
    places = list(_places(run, whole)) if run else []
    return whole[places[0] + len(run) :] if len(places) == 1 else None


def _places(run: tuple[int, ...], ids: tuple[int, ...]) -> Iterator[int]:
    """Yield where `run` begins in `ids`. `tuple.index` searches at the speed of C."""
    place = -1
    for _ in range(ids.count(run[0])):
        place = ids.index(run[0], place + 1)
        if ids[place : place + len(run)] == run:
            yield place
