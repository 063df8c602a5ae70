"""What a fresh rendering of the same messages would have changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import attrs

from .seam import common_prefix


@attrs.frozen
class Drift:
    """How the ids that were used differ from those of a fresh rendering."""

    changed: int
    """Ids in use that the rendering would not repeat."""
    first: int | None
    """Where the first of them stands; None where nothing differs."""


def drift(used: Sequence[int], rendered: Sequence[int], close: Sequence[int]) -> Drift:
    """Compare turn by turn, a turn being what ends with the first id of `close`; linear in the ids.

    >>> drift([1, 5, 6, 2, 1, 7, 2], [1, 56, 2, 1, 7, 2], close=[2])   # 5, 6 would have become 56
    Drift(changed=2, first=1)
    >>> drift([1, 5, 2], [1, 5, 2], close=[2])
    Drift(changed=0, first=None)
    """
    if used == rendered:
        return Drift(0, None)
    ours, theirs = _turns(used, close[:1]), _turns(rendered, close[:1])
    if len(ours) != len(theirs):
        ours, theirs = [list(used)], [list(rendered)]
    changed = sum(_changed(a, b) for a, b in zip_longest(ours, theirs, fillvalue=()))
    return Drift(changed, common_prefix(used, rendered))


def _turns(ids: Sequence[int], mark: Sequence[int]) -> list[list[int]]:
    """Split after every mark."""
    turns: list[list[int]] = [[]]
    for item in ids:
        turns[-1].append(item)
        if item in mark:
            turns.append([])
    return turns


def _changed(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Return how many of our ids lie between the common beginning and the common end."""
    start = common_prefix(ours, theirs)
    room = min(len(ours), len(theirs)) - start
    return len(ours) - start - common_prefix(ours[::-1], theirs[::-1], room)
