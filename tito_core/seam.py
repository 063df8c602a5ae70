"""Where does the template's text after an assistant turn begin?

Ids alone come back, so the place is found by difference: the same conversation is rendered twice, with two
assistant contents that share no character. What the two renders have in common at the end is what the
template writes after the content; what lies between is the content and must have no id in common.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

SENTINELS = ("Zephyr", "4096")
"""Two contents without a common character."""


@attrs.frozen
class Seam:
    """What one template writes after an assistant's content."""

    tail: tuple[int, ...]
    """Every id after the content."""
    content: tuple[int, ...]
    """The ids of the content itself."""

    def ends(self, ids: Sequence[int]) -> bool:
        """Tell whether another render ends with the end of the content and the same tail."""
        return tuple(ids[-len(self.tail) - 1 :]) == (self.content[-1], *self.tail)

    def after(self, ids: Sequence[int]) -> Sequence[int] | None:
        """Return what follows the content in another render, or None where it does not stand once."""
        size = len(self.content)
        places = [i + size for i in range(len(ids)) if tuple(ids[i : i + size]) == self.content]
        return ids[places[0] :] if len(places) == 1 else None


def locate(first: Sequence[int], second: Sequence[int]) -> Seam | None:
    """Return the seam of `first`, or None where the content was lost, repeated or merged.

    >>> locate([1, 50, 51, 9, 2], [1, 60, 9, 2])
    Seam(tail=(9, 2), content=(50, 51))
    >>> locate([1, 9, 2], [1, 9, 2]) is None                        # the template dropped the content
    True
    >>> locate([1, 50, 9, 50, 9, 2], [1, 60, 9, 60, 9, 2]) is None  # it wrote the content twice
    True
    """
    start = common_prefix(first, second)
    room = min(len(first), len(second)) - start
    end = common_prefix(first[::-1], second[::-1], room)
    ours, theirs = first[start : len(first) - end], second[start : len(second) - end]
    if not ours or not theirs or not set(ours).isdisjoint(theirs):
        return None
    return Seam(tuple(first[len(first) - end :]), tuple(ours))


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
