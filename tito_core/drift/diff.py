"""Where two renderings of one conversation differ: stretch by stretch, without looking twice at what agrees.

Both are split after every marker, an id that a template writes at the borders of turns, because borders
survive what happens between them. Stretches between borders are laid side by side, and each unequal pair is
one hunk, trimmed to its first and last differing id. What comes before a given pair of places is not read.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

import attrs

from ..ids import PACKED
from ..samples.trie import common

Packed: TypeAlias = "array[int]"
Range: TypeAlias = tuple[int, int]

RUN = 4
"""Ids that must agree inside a hunk for it to be two: fewer agree by chance."""
MOST = 250_000
"""Pairs of ids, or of stretches, that are compared with each other; more than that, between two borders that
agree, are one hunk: a quadratic search must end somewhere known."""


@attrs.frozen(order=True)
class Hunk:
    """`used[start:stop]` where another rendering has `rendered[begin:end]`; either may be empty."""

    start: int
    stop: int
    begin: int
    end: int

    def touches(self, other: Hunk) -> bool:
        """Tell whether two hunks share an id of `used`; an empty one touches what begins or ends there."""
        if self.start == self.stop or other.start == other.stop:
            return self.start <= other.stop and other.start <= self.stop
        return self.start < other.stop and other.start < self.stop


def packed(ids: Sequence[int]) -> Packed:
    """Return ids at four bytes each, compared as memory."""
    return ids if isinstance(ids, array) else array(PACKED, ids)


def hunks(
    used: Packed,
    rendered: Packed,
    markers: Collection[int],
    *,
    since: Range = (0, 0),
    floor: int = 0,
    open_end: bool = False,
) -> list[Hunk]:
    """Return what differs, in order. With `open_end`, `used` may end earlier: what follows is not compared.

    `since` are two places up to which nothing needs to be compared again, and which agree back to `floor`.

    >>> ids = packed([1, 5, 6, 2, 1, 7, 2, 8])
    >>> hunks(ids, packed([1, 56, 2, 1, 7, 2, 9]), {2})
    [Hunk(start=1, stop=3, begin=1, end=2), Hunk(start=7, stop=8, begin=6, end=7)]
    >>> hunks(ids[:4], packed([1, 56, 2, 1, 7, 2]), {2}, open_end=True)
    [Hunk(start=1, stop=3, begin=1, end=2)]
    """
    same = common(used, since[0], rendered, since[1])
    place, other = since[0] + same, since[1] + same
    if place == len(used) and (open_end or other == len(rendered)):
        return []
    back = _since_marker(used, place, floor, markers)
    ours = _stretches(used, place - back, markers)
    theirs = _stretches(rendered, other - back, markers)
    if open_end:
        theirs = _as_far(used, rendered, ours, theirs, markers)
    return [trimmed(used, rendered, Hunk(*a, *b)) for a, b in _unequal(used, rendered, ours, theirs)]


def _since_marker(ids: Packed, place: int, limit: int, markers: Collection[int]) -> int:
    """Return how many ids before a place follow the last marker there."""
    back = 0
    while place - back > limit and ids[place - back - 1] not in markers:
        back += 1
    return back


def _stretches(ids: Packed, start: int, markers: Collection[int]) -> list[Range]:
    """Split after every marker."""
    found = []
    for place in range(start, len(ids)):
        if ids[place] in markers:
            found.append((start, place + 1))
            start = place + 1
    return [*found, (start, len(ids))] if start < len(ids) else found


def _as_far(
    used: Packed, rendered: Packed, ours: list[Range], theirs: list[Range], markers: Collection[int]
) -> list[Range]:
    """Return the stretches up to where the rendering closes what `used` ends with.

    That is where the marker at the end of `used` stands as many times as in `used`. Where it does not, as
    many stretches are taken as there are; and where `used` breaks off without a marker, so does the last.
    """
    last = used[-1]
    closed = [i for i, (_, stop) in enumerate(theirs) if last in markers and rendered[stop - 1] == last]
    count = sum(used[stop - 1] == last for _, stop in ours)
    if 0 < count <= len(closed):
        return theirs[: closed[count - 1] + 1]
    kept = theirs[: len(ours)]
    if last not in markers and kept and rendered[kept[-1][1] - 1] in markers:
        kept[-1] = kept[-1][0], kept[-1][1] - 1
    return kept


def _unequal(
    used: Packed, rendered: Packed, ours: list[Range], theirs: list[Range]
) -> Iterator[tuple[Range, Range]]:
    """Yield the pairs of stretches that differ; either of a pair may be empty."""
    left, right = _values(used, ours), _values(rendered, theirs)
    ends = ours[-1][1] if ours else len(used), theirs[-1][1] if theirs else len(rendered)
    for a, b, c, d in _blocks(left, right):
        if b - a == d - c:
            yield from ((ours[a + i], theirs[c + i]) for i in range(b - a) if left[a + i] != right[c + i])
        else:
            yield _spanned(ours, a, b, ends[0]), _spanned(theirs, c, d, ends[1])


def _values(ids: Packed, ranges: list[Range]) -> list[bytes]:
    return [ids[start:stop].tobytes() for start, stop in ranges]


def _spanned(ranges: list[Range], first: int, last: int, end: int) -> Range:
    start = ranges[first][0] if first < len(ranges) else end
    return start, ranges[last - 1][1] if first < last else start


def _blocks(left: list[bytes], right: list[bytes]) -> list[tuple[int, int, int, int]]:
    """Return blocks of stretches that are no pairs of equals."""
    first, last = _ends(left, right)
    ours, theirs = left[first : len(left) - last], right[first : len(right) - last]
    if len(ours) == len(theirs) or len(ours) * len(theirs) > MOST:
        return [(first, first + len(ours), first, first + len(theirs))]
    found = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    return [(first + a, first + b, first + c, first + d) for kind, a, b, c, d in found if kind != "equal"]


def _ends(left: list[bytes], right: list[bytes]) -> tuple[int, int]:
    """Return how many stretches are equal at the beginning, and then at the end."""
    size, first, last = min(len(left), len(right)), 0, 0
    while first < size and left[first] == right[first]:
        first += 1
    while last < size - first and left[-1 - last] == right[-1 - last]:
        last += 1
    return first, last


def trimmed(used: Packed, rendered: Packed, hunk: Hunk) -> Hunk:
    """Leave out the ids that both sides begin with, and then those that both end with."""
    start, stop, begin, end = hunk.start, hunk.stop, hunk.begin, hunk.end
    same = common(used[start:stop], 0, rendered[begin:end], 0)
    start, begin = start + same, begin + same
    same = common(used[start:stop][::-1], 0, rendered[begin:end][::-1], 0)
    return Hunk(start, stop - same, begin, end - same)


def split(used: Packed, rendered: Packed, hunk: Hunk) -> list[Hunk]:
    """Return the hunks that one is made of, where ids inside it agree in runs.

    >>> split(packed([9, 9, 1, 2, 3, 4, 7]), packed([1, 2, 3, 4, 8]), Hunk(0, 7, 0, 5))
    [Hunk(start=0, stop=2, begin=0, end=0), Hunk(start=6, stop=7, begin=4, end=5)]
    """
    ours, theirs = used[hunk.start : hunk.stop], rendered[hunk.begin : hunk.end]
    if not min(len(ours), len(theirs)) >= RUN or len(ours) * len(theirs) > MOST:
        return [hunk]
    found, start, begin = [], hunk.start, hunk.begin
    for a, b, size in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        if size >= RUN or not size:  # the last block is empty, where both end
            found.append(Hunk(start, hunk.start + a, begin, hunk.begin + b))
            start, begin = hunk.start + a + size, hunk.begin + b + size
    return [one for one in found if one.start < one.stop or one.begin < one.end]
