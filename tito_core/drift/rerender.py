"""What a fresh rendering of the same messages would have changed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import attrs

from ..seams.seam import common_prefix


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
    ours, theirs = _turns(used, close[:1]), _turns(rendered, close[:1])
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    changed = sum(_changed(ours[a:b], theirs[c:d]) for kind, a, b, c, d in blocks if kind != "equal")
    same = len(used) == len(rendered) == common_prefix(used, rendered)
    return Drift(changed, None if same else common_prefix(used, rendered))


def _turns(ids: Sequence[int], mark: Sequence[int]) -> list[tuple[int, ...]]:
    """Split after every mark."""
    turns: list[list[int]] = [[]]
    for item in ids:
        turns[-1].append(item)
        if item in mark:
            turns.append([])
    return list(map(tuple, turns))


def _changed(ours: list[tuple[int, ...]], theirs: list[tuple[int, ...]]) -> int:
    """Return how many of our ids are new, turn against turn where there are as many."""
    if len(ours) != len(theirs):
        ours, theirs = [sum(ours, ())], [sum(theirs, ())]
    return sum(map(_between, ours, theirs))


def _between(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """Return how many of our ids lie between the common beginning and the common end."""
    start = common_prefix(ours, theirs)
    room = min(len(ours), len(theirs)) - start
    return len(ours) - start - common_prefix(ours[::-1], theirs[::-1], room)
