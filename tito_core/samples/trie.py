"""Prefixes of ids, each at one place: two sequences meet at a place exactly where their ids are equal.

A radix tree over packed ids. A chain's links are remembered, so that a sequence which shares what it extends
costs what is new; ids in plain lists cost one comparison of memory each.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias

import attrs

from ..ids import PACKED, Ids


@attrs.define(eq=False, repr=False)
class Branch:
    """Ids that stand between two forks."""

    older: Branch | None
    start: int
    """How many ids stand before."""
    ids: array[int]
    newer: dict[int, Branch] = attrs.field(factory=dict)
    """What may follow, by its first id."""

    @property
    def stop(self) -> int:
        """How many ids stand before and here."""
        return self.start + len(self.ids)

    def split(self, depth: int) -> Branch:
        """Give the ids before `depth` to a branch of their own, and return that."""
        size = depth - self.start
        upper = Branch(self.older, self.start, self.ids[:size], {self.ids[size]: self})
        if self.older is not None:
            self.older.newer[self.ids[0]] = upper
        self.older, self.start, self.ids = upper, depth, self.ids[size:]
        return upper


Place: TypeAlias = tuple[Branch, int]
"""A branch, and how many ids stand before the place; settled where the branch has the last of them."""


class Trie:
    """All prefixes of the ids that were placed.

    >>> trie = Trie()
    >>> first, second = Ids.of([1, 2, 3]), Ids.of([1, 2]).then((3, 4))
    >>> places = [trie.place(ids) for ids in (first, second, Ids.of([1, 2, 3, 4]), Ids.of([1, 2, 9]))]
    >>> [settled(place)[1] for place in places]
    [3, 4, 4, 3]
    >>> settled(places[1]) == settled(places[2]), settled(places[0]) == settled(places[3])
    (True, False)
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self._root = Branch(None, 0, array(PACKED))
        self._known: dict[int, tuple[Ids, Place]] = {}  # a link stays alive, so that its id stays its own

    def place(self, ids: Ids) -> Place:
        """Return the place where `ids` end. Later placings may split its branch: see `settled`."""
        missing, place = [], (self._root, 0)
        for link in ids.links():
            if id(link) in self._known:
                place = self._known[id(link)][1]
                break
            missing.append(link)
        for link in reversed(missing):
            place = _grown(place, link.part)
            self._known[id(link)] = link, place
        return place


def settled(place: Place) -> Place:
    """Return a place after all splits."""
    branch, depth = place
    while branch.older is not None and depth <= branch.start:
        branch = branch.older
    return branch, depth


def _grown(place: Place, part: Sequence[int]) -> Place:
    """Follow `part` from a place, adding what is not there yet."""
    ids = part if isinstance(part, array) else array(PACKED, part)
    (branch, depth), done = settled(place), 0
    while done < len(ids):
        same = common(branch.ids, depth - branch.start, ids, done)
        depth, done = depth + same, done + same
        if done == len(ids):
            break
        if depth < branch.stop:
            branch = branch.split(depth)
        following = branch.newer.get(ids[done])
        if following is None:
            following = branch.newer[ids[done]] = Branch(branch, depth, ids[done:] if done else ids)
        branch = following
    return branch, depth


def common(ours: array[int], start: int, theirs: array[int], begin: int) -> int:
    """Return how many ids two arrays share from two positions on, comparing memory, not ids.

    >>> common(array("I", [9, 1, 2, 3]), 1, array("I", [1, 2, 4]), 0)
    2
    """
    size = min(len(ours) - start, len(theirs) - begin)
    if ours[start : start + size] == theirs[begin : begin + size]:
        return size
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        if ours[start + low : start + middle] == theirs[begin + low : begin + middle]:
            low = middle
        else:
            high = middle
    return low
