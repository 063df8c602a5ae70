"""Routed experts: which experts each position used, as rows of bytes aligned to ids.

Several calls may send a row for one position, and some rows are no routes. The first row that passes these
rules counts: it is of the forward pass that sampled the turn, and later calls computed it again.

- The row of a call's last sampled id is a filling: no forward pass followed that id. Engines leave the row
  out, and clients that need one repeat a row or invent one. The next call has the id in its prompt.
- With two or more experts per layer, a row of zeros is lost: no layer chooses one expert twice. SGLang and
  vLLM send the zeros of a new buffer where a pass was not recorded (SGLang #23885: the whole prompt, where
  prefill and decode run on two servers). A layer that does not route has zeros in all rows, so zeros in one
  layer say nothing.
- A row that repeats the row before it is doubtful, and so is a row of zeros with one expert per layer: both
  may be true. Such a row counts, unless a later call sent one that is not doubtful.

A position without a row that counts is invalid. What rows do not show: the row of another request, which an
engine left in a buffer that it used again (SGLang #26975, llm-d-router #1473).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from math import prod
from operator import itemgetter

import attrs

from ..checks import require
from ..errors import InputError

SIZES = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "int64": 8}
"""Bytes of each number, by numpy's names."""


class MissingRow(Enum):
    """What to write at positions without a row from an engine.

    `SHORTER` has zeros between rows, and `REPEAT` before the first row, marked invalid too.
    """

    SHORTER = "end the table there"
    PAD = "zeros, marked invalid"
    REPEAT = "the row before, marked invalid"


@attrs.frozen(kw_only=True)
class RoutedExperts:
    """Rows of expert choices of one call, as its engine sent them.

    Attributes:
        data: The numbers in C order, little-endian.
        dtype: A numpy name: `uint8`, `int8`, `uint16`, `int16`, `uint32`, `int32` or `int64`.
        shape: Positions, layers, experts per position.
        start: Position in the call's ids that the first row belongs to.
        rows: Number of positions covered.
        stop: Position after the last row.

    Raises:
        InputError: A value has the wrong type, or `data` does not have the size that `shape` needs.

    >>> RoutedExperts(data=bytes([1, 2, 3, 4]), dtype="uint8", shape=(2, 1, 2)).rows
    2
    """

    data: bytes = attrs.field(repr=False)
    dtype: str = attrs.field()
    shape: tuple[int, ...] = attrs.field()
    start: int = attrs.field(default=0)

    @data.validator
    def _is_bytes(self, _: object, value: object) -> None:
        require(value, bytes, "data of routed experts", "bytes")

    @dtype.validator
    def _is_known(self, _: object, value: object) -> None:
        if value not in SIZES:
            raise InputError(f"dtype of routed experts is {value!r:.60}: give one of {', '.join(SIZES)}")

    @shape.validator
    def _fits(self, _: object, value: object) -> None:
        whole = isinstance(value, tuple) and all(type(size) is int and size >= 0 for size in value)
        if not whole or not value or 0 in self.shape[1:]:
            raise InputError(f"shape of routed experts is {value!r:.60}: give (positions, layers, experts)")
        if prod(self.shape) * SIZES[self.dtype] != len(self.data):
            raise InputError(
                f"routed experts have {len(self.data)} bytes, {self.dtype} of shape {value} needs "
                f"{prod(self.shape) * SIZES[self.dtype]}"
            )

    @start.validator
    def _is_position(self, _: object, value: object) -> None:
        if type(value) is not int or value < 0:
            raise InputError(f"routed experts start at {value!r:.60}: give a position in the call's ids")

    @property
    def rows(self) -> int:
        """Number of positions covered."""
        return self.shape[0]

    @property
    def stop(self) -> int:
        """Position after the last row."""
        return self.start + self.rows

    @property
    def kind(self) -> tuple[str, tuple[int, ...]]:
        """Type of the numbers and shape of one row: equal for rows that share a table."""
        return self.dtype, self.shape[1:]

    def between(self, start: int, stop: int) -> memoryview:
        """Return the rows of positions `start` to `stop`, without copying."""
        size = _row_size(self)
        return memoryview(self.data)[(start - self.start) * size : (stop - self.start) * size]


def _row_size(experts: RoutedExperts) -> int:
    """Return the bytes of a row."""
    return prod(experts.shape[1:]) * SIZES[experts.dtype]


@attrs.frozen(kw_only=True)
class RowExperts:
    """Rows of expert choices for the positions of a training row, from its first id on.

    Attributes:
        data: The numbers in C order, little-endian.
        dtype: A numpy name, as the engines sent it.
        shape: Positions, layers, experts per position. With `MissingRow.SHORTER` there may be fewer positions
            than ids.
        valid: Half-open ranges of the positions whose rows an engine sent. All other rows are fillings.
        corrected: Half-open ranges of valid positions where an earlier call sent another row, which repeats
            the row before it, or has zeros of one expert per layer. The row here is a later call's.
    """

    data: bytes = attrs.field(repr=False)
    dtype: str
    shape: tuple[int, ...]
    valid: tuple[tuple[int, int], ...]
    corrected: tuple[tuple[int, int], ...] = ()


def merge_experts(
    calls: Iterable[tuple[str, int, RoutedExperts]], length: int, missing: MissingRow
) -> RowExperts | None:
    """Return one table for `length` ids from the rows of calls in the order of turns; None without calls.

    A call is its name, the number of its ids that went through the model, and its rows. This module's first
    lines say which row of a position counts. Linear in the bytes. Raises `InputError` where the calls' rows
    differ in dtype or layers.

    >>> first = RoutedExperts(data=bytes([1, 2]), dtype="uint8", shape=(2, 1))
    >>> later = RoutedExperts(data=bytes([7, 8, 9, 10]), dtype="uint8", shape=(4, 1))
    >>> table = merge_experts([("a", 2, first), ("b", 4, later)], 5, MissingRow.SHORTER)
    >>> list(table.data), table.shape, table.valid
    ([1, 2, 9, 10], (4, 1), ((0, 4),))
    >>> table = merge_experts([("a", 2, first)], 3, MissingRow.REPEAT)
    >>> list(table.data), table.valid
    ([1, 2, 2], ((0, 2),))

    The first row is lost, and the third repeats the second:

    >>> first = RoutedExperts(data=bytes([0, 0, 3, 4, 3, 4]), dtype="uint8", shape=(3, 1, 2))
    >>> later = RoutedExperts(data=bytes([1, 2, 3, 4, 5, 6]), dtype="uint8", shape=(3, 1, 2))
    >>> merge_experts([("a", 3, first)], 3, MissingRow.PAD).valid
    ((1, 3),)
    >>> table = merge_experts([("a", 3, first), ("b", 3, later)], 3, MissingRow.PAD)
    >>> list(table.data), table.valid, table.corrected
    ([1, 2, 3, 4, 5, 6], ((0, 3),), ((2, 3),))
    """
    named = list(calls)
    if not named:
        return None
    first, _, one = named[0]
    for name, _, experts in named:
        if experts.kind != one.kind:
            raise InputError(
                f"call {name!r} has routed experts of {experts.kind}, call {first!r} of {one.kind}: "
                "give all calls of a conversation the same dtype and layers"
            )
    table = RowsThatCount([(0, length)])
    for _, passed, experts in named:
        table.add(experts, passed)
    pieces = table.pieces()
    end = max((stop for _, stop, _ in pieces), default=0) if missing is MissingRow.SHORTER else length
    return RowExperts(
        data=b"".join(_with_fillings(pieces, end, _row_size(one), missing)),
        dtype=one.dtype,
        shape=(end, *one.shape[1:]),
        valid=tuple(_merge_ranges((start, stop) for start, stop, _ in pieces)),
        corrected=tuple(_merge_ranges((place, place + 1) for place in sorted(table.corrected))),
    )


Range = tuple[int, int]
Piece = tuple[int, int, memoryview]
"""Start, stop and rows of consecutive positions."""


@attrs.define
class RowsThatCount:
    """The rows that count, by position, as calls are added in the order of turns.

    Attributes:
        holes: Ranges without a sound row so far, sorted.
        sound: Rows that are neither lost nor doubtful, in any order.
        doubtful: The first doubtful row of each position.
        corrected: Positions where a sound row replaces a doubtful one that differs.
    """

    holes: list[Range]
    sound: list[Piece] = attrs.field(factory=list)
    doubtful: dict[int, memoryview] = attrs.field(factory=dict)
    corrected: list[int] = attrs.field(factory=list)

    def add(self, experts: RoutedExperts, passed: int) -> None:
        """Take a call's rows of positions below `passed` that have no sound row yet."""
        begin, end = experts.start, max(experts.start, min(experts.stop, passed))
        first = bisect_right(self.holes, begin, key=itemgetter(1))
        last = bisect_left(self.holes, end, key=itemgetter(0))
        left = []
        for hole in self.holes[first:last]:
            left += _outside(hole, self._take(experts, max(hole[0], begin), min(hole[1], end)))
        self.holes[first:last] = left

    def _take(self, experts: RoutedExperts, start: int, stop: int) -> list[Range]:
        """Take the rows of a range, and return where the sound ones are."""
        odd = dict(_odd_rows(experts, start, stop))
        ranges = _outside((start, stop), [(place, place + 1) for place in odd])
        for begin, end in ranges:
            self.sound.append((begin, end, experts.between(begin, end)))
            for place in range(begin, end) if self.doubtful else ():
                if self.doubtful.get(place) not in (None, experts.between(place, place + 1)):
                    self.corrected.append(place)
        for place, is_lost in odd.items():
            if not is_lost:
                self.doubtful.setdefault(place, experts.between(place, place + 1))
        return ranges

    def pieces(self) -> list[Piece]:
        """Return the rows that count, sorted by position."""
        left = chain.from_iterable(range(*hole) for hole in self.holes)
        rest = [(place, place + 1, self.doubtful[place]) for place in left if place in self.doubtful]
        return sorted([*self.sound, *rest], key=itemgetter(0))


ZERO_OR_REPEATED = re.compile(rb"\0|(?<=(.))\1", re.DOTALL)
"""A byte that is zero or equals the byte before it."""


def _odd_rows(experts: RoutedExperts, start: int, stop: int) -> Iterator[tuple[int, bool]]:
    """Yield the positions of rows that are lost (True) or doubtful (False)."""
    data, size, before = experts.data, _row_size(experts), max(start - 1, experts.start)
    zeros, several = bytes(size), max(experts.shape[1:][-1:], default=1) > 1
    # Of most rows one byte shows that they are neither: the low one of the last number.
    low = (before - experts.start + 1) * size - SIZES[experts.dtype]
    ends = data[low : (stop - experts.start) * size : size]
    for found in ZERO_OR_REPEATED.finditer(ends, start - before):
        place = before + found.start()
        end = (place - experts.start + 1) * size
        row = data[end - size : end]
        if row == zeros:
            yield place, several
        elif row == data[max(end - 2 * size, 0) : end - size]:
            yield place, False


def _outside(whole: Range, inside: Iterable[Range]) -> list[Range]:
    """Return what sorted ranges leave of a whole.

    >>> _outside((0, 9), [(0, 2), (4, 5), (5, 6)])
    [(2, 4), (6, 9)]
    """
    edges = [whole[0], *chain.from_iterable(inside), whole[1]]
    return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop]


def _with_fillings(
    pieces: Iterable[Piece], end: int, size: int, missing: MissingRow
) -> Iterator[bytes | memoryview]:
    """Yield the rows, of `size` bytes each, with fillings between them and up to `end`."""
    done, last = 0, memoryview(bytes(size))
    for start, stop, rows in [*pieces, (end, end, memoryview(b""))]:
        yield bytes(last if missing is MissingRow.REPEAT else size) * (start - done)
        yield rows
        done, last = stop, rows[-size:] if rows else last


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges that touch."""
    merged: list[tuple[int, int]] = []
    for start, stop in ranges:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return merged
