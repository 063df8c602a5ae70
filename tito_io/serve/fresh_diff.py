"""Find the ids of a prompt that a fresh rendering of its messages would change."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from tito_core.seams.seam import common_prefix

Turn = tuple[int, ...]


def drifted(used: Sequence[int], rendered: Sequence[int], close: Sequence[int]) -> bytearray:
    """Return a 1 for each id of `used` that `rendered` changes; turns end with the first id of `close`.

    Turns are aligned first, so that an id more or less in one turn marks no other turn.

    >>> list(drifted([1, 5, 6, 2, 1, 7, 2], [1, 56, 2, 1, 7, 2], [2]))   # 5, 6 would have become 56
    [0, 1, 1, 0, 0, 0, 0]
    """
    ours, theirs = _turns(used, close[:1]), _turns(rendered, close[:1])
    marks = bytearray()
    for kind, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        marks += bytes(sum(map(len, ours[a:b]))) if kind == "equal" else _changed(ours[a:b], theirs[c:d])
    return marks


def _turns(ids: Sequence[int], mark: Sequence[int]) -> list[Turn]:
    turns: list[list[int]] = [[]]
    for item in ids:
        turns[-1].append(item)
        if item in mark:
            turns.append([])
    return list(map(tuple, turns))


def _changed(ours: list[Turn], theirs: list[Turn]) -> bytes:
    """Return the marks of turns that differ: turn by turn if their numbers are equal, else as one."""
    if len(ours) != len(theirs):
        ours, theirs = [sum(ours, ())], [sum(theirs, ())]
    return b"".join(_between(one, other) for one, other in zip(ours, theirs, strict=True))


def _between(ours: Turn, theirs: Turn) -> bytes:
    """Return marks between the common beginning and the common end."""
    start = common_prefix(ours, theirs)
    end = common_prefix(ours[start:][::-1], theirs[start:][::-1])
    return bytes(start) + b"\x01" * (len(ours) - start - end) + bytes(end)
