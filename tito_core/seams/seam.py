"""Where does the template's text after an assistant turn begin?

Ids alone come back, so the place is found by difference: the same conversation is rendered with a short
text in the turn and with a longer one. The longer render must be the shorter one with ids inserted at a
single place. Then the text stands there once, nothing else was made of it, and no id reaches across the
place; whatever the shorter render has after it, the template wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

SHORT = "Zephyr"
LONGER = "Zephyr more"
"""The short text and more: the space begins a token of its own in every tokenizer that splits words."""
OTHER = "4096"
"""A text without a character of the short one."""


@attrs.frozen
class Seam:
    """A render, and the place in it where an assistant's own text ends."""

    ids: tuple[int, ...]
    place: int

    @property
    def tail(self) -> tuple[int, ...]:
        """Every id after the text."""
        return self.ids[self.place :]

    def ends(self, ids: Sequence[int], cut: int = 0) -> bool:
        """Tell whether another render ends with the tail from `cut` on, and the id before that."""
        end = self.ids[self.place + cut - 1 :]
        return tuple(ids[-len(end) :]) == end


def find_seam(short: Sequence[int], longer: Sequence[int]) -> Seam | None:
    """Return the seam of `short`, or None where its text was lost, repeated, measured or merged.

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


def common_prefix(first: Sequence[int], second: Sequence[int], limit: int | None = None) -> int:
    """Return how many ids two sequences share at their beginning.

    >>> common_prefix([1, 2, 3], [1, 2, 4]), common_prefix([1, 2, 3], [1, 2, 4], limit=1)
    (2, 1)
    """
    count = 0
    for ours, theirs in zip(first[:limit], second[:limit], strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def after(text: Sequence[int], ids: Sequence[int]) -> tuple[int, ...] | None:
    """Return what follows `text` in `ids`, or None where it does not stand there exactly once.

    >>> after([5, 6], [1, 5, 6, 2]), after([5], [5, 1, 5]) is None
    ((2,), True)
    """
    run, held = tuple(text), tuple(ids)
    places = list(_places(run, held)) if run else []
    return held[places[0] + len(run) :] if len(places) == 1 else None


def _places(run: tuple[int, ...], ids: tuple[int, ...]) -> Iterator[int]:
    """Yield where a run begins, at the speed at which a tuple is searched for one item."""
    place = -1
    for _ in range(ids.count(run[0])):
        place = ids.index(run[0], place + 1)
        if ids[place : place + len(run)] == run:
            yield place
