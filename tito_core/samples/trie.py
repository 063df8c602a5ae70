"""A radix tree over token ids: two sequences share a place exactly where their prefixes are equal.

Sequences that extend each other as linked parts (`Ids.then`) cost only what is new.
Plain lists of ids cost one memory comparison each.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import attrs

from ..ids import PACKED, Ids

Items = TypeVar("Items", "array[int]", str)


@attrs.define(eq=False, repr=False)
class Branch:
    """Ids between two forks of the tree; `start` counts the ids before them, `children` go by first id."""

    parent: Branch | None
    start: int
    ids: array[int]
    children: dict[int, Branch] = attrs.field(factory=dict)

    @property
    def stop(self) -> int:
        """Number of ids before the branch and in it."""
        return self.start + len(self.ids)

    def split(self, depth: int) -> Branch:
        """Move the ids before `depth` to a new branch above this one, and return the new branch."""
        size = depth - self.start
        upper = Branch(self.parent, self.start, self.ids[:size], {self.ids[size]: self})
        if self.parent is not None:
            self.parent.children[self.ids[0]] = upper
        self.parent, self.start, self.ids = upper, depth, self.ids[size:]
        return upper


Place: TypeAlias = tuple[Branch, int]
"""A branch and the number of ids before the place. `settled` gives the branch that has the last of them."""


class Trie:
    """All prefixes of the sequences that were placed.

    >>> trie = Trie()
    >>> first, second = Ids.of([1, 2, 3]), Ids.of([1, 2]).then((3, 4))
    >>> places = [trie.place(ids) for ids in (first, second, Ids.of([1, 2, 3, 4]), Ids.of([1, 2, 9]))]
    >>> [settled(place)[1] for place in places]
    [3, 4, 4, 3]
    >>> settled(places[1]) == settled(places[2]), settled(places[0]) == settled(places[3])
    (True, False)
    """

    def __init__(self) -> None:
        """Start without sequences."""
        self._root = Branch(None, 0, array(PACKED))
        # Holding the link keeps it alive: a freed object's `id` could be given to another one.
        self._known: dict[int, tuple[Ids, Place]] = {}

    def place(self, ids: Ids) -> Place:
        """Return the place where `ids` end. A later call may split its branch: see `settled`."""
        missing, place = [], (self._root, 0)
        for link in ids.links():
            if id(link) in self._known:
                place = self._known[id(link)][1]
                break
            missing.append(link)
        for link in reversed(missing):
            place = _extend(place, link.part)
            self._known[id(link)] = link, place
        return place


def settled(place: Place) -> Place:
    """Return a place with the branch that has its last id, after all splits."""
    branch, depth = place
    while branch.parent is not None and depth <= branch.start:
        branch = branch.parent
    return branch, depth


def _extend(place: Place, part: Sequence[int]) -> Place:
    """Follow `part` from a place, adding the ids that are missing, and return where it ends."""
    ids = part if isinstance(part, array) else array(PACKED, part)
    (branch, depth), done = settled(place), 0
    while True:
        length = common_length(branch.ids, ids, depth - branch.start, done)
        depth, done = depth + length, done + length
        if done == len(ids):
            return branch, depth
        if depth < branch.stop:
            branch = branch.split(depth)
        child = branch.children.get(ids[done])
        if child is None:
            child = branch.children[ids[done]] = Branch(branch, depth, ids[done:] if done else ids)
        branch = child


def common_length(left: Items, right: Items, start: int = 0, begin: int = 0) -> int:
    """Return how many ids, or characters, are equal in `left` from `start` and in `right` from `begin`.

    >>> common_length(array("I", [9, 1, 2, 3]), array("I", [1, 2, 4]), 1)
    2
    """
    size = min(len(left) - start, len(right) - begin)
    if left[start : start + size] == right[begin : begin + size]:
        return size
    # Bisect over slices: comparing memory is far faster than comparing item by item.
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        if left[start + low : start + middle] == right[begin + low : begin + middle]:
            low = middle
        else:
            high = middle
    return low
