"""Which experts each position went through: opaque rows of bytes, aligned to ids and never made up.

Engines leave out the row of the last id, which nothing followed; the next call, which has that id in its
prompt, sends it. A position that no call covers stays invalid, also where a trainer wants a row for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from enum import Enum
from math import prod
from operator import itemgetter

import attrs

from ..errors import InputError

SIZES = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "int64": 8}
"""Bytes of each number, by numpy's names."""


class MissingRow(Enum):
    """What stands where no engine sent a row."""

    SHORTER = "nothing at the end; zeros, marked invalid, between rows"
    PAD = "zeros, marked invalid"
    REPEAT = "the row before (zeros where there is none), marked invalid"


@attrs.frozen(kw_only=True)
class RoutedExperts:
    """Rows of one call, as its engine sent them.

    >>> RoutedExperts(data=bytes([1, 2, 3, 4]), dtype="uint8", shape=(2, 1, 2)).rows
    2
    """

    data: bytes = attrs.field(repr=False)
    """The numbers in C order, little-endian."""
    dtype: str = attrs.field()
    """A numpy name: `uint8`, `uint16`, `int32`, ..."""
    shape: tuple[int, ...] = attrs.field()
    """Positions, layers, experts a position."""
    start: int = attrs.field(default=0)
    """The position in prompt and completion that the first row belongs to."""

    @data.validator
    def _is_bytes(self, _: object, value: object) -> None:
        if not isinstance(value, bytes):
            raise InputError(f"routed experts' data is {type(value).__name__}: give bytes")

    @dtype.validator
    def _is_known(self, _: object, value: object) -> None:
        if value not in SIZES:
            raise InputError(f"routed experts' dtype is {value!r:.60}: give one of {', '.join(SIZES)}")

    @shape.validator
    def _fits(self, _: object, value: object) -> None:
        whole = isinstance(value, tuple) and all(type(size) is int and size >= 0 for size in value)
        if not whole or not value or 0 in self.shape[1:]:
            raise InputError(f"routed experts' shape is {value!r:.60}: give positions, layers, experts")
        if prod(self.shape) * SIZES[self.dtype] != len(self.data):
            raise InputError(
                f"routed experts have {len(self.data)} bytes, {self.dtype} of shape {value} needs "
                f"{prod(self.shape) * SIZES[self.dtype]}"
            )

    @start.validator
    def _is_place(self, _: object, value: object) -> None:
        if type(value) is not int or value < 0:
            raise InputError(f"routed experts start at {value!r:.60}: give a position in the call's ids")

    @property
    def rows(self) -> int:
        """Positions covered."""
        return self.shape[0]

    @property
    def stop(self) -> int:
        """The position after the last row."""
        return self.start + self.rows

    @property
    def kind(self) -> tuple[str, tuple[int, ...]]:
        """What must be alike for rows to stand in one table."""
        return self.dtype, self.shape[1:]

    def cut(self, start: int, stop: int) -> memoryview:
        """Return the rows of some positions, uncopied."""
        size = prod(self.shape[1:]) * SIZES[self.dtype]
        return memoryview(self.data)[(start - self.start) * size : (stop - self.start) * size]


@attrs.frozen(kw_only=True)
class RowExperts:
    """Rows for the positions of a training row, from its first id on."""

    data: bytes = attrs.field(repr=False)
    """The numbers in C order, little-endian."""
    dtype: str
    """As the engines sent it."""
    shape: tuple[int, ...]
    """Positions, layers, experts a position. With `MissingRow.SHORTER` there may be fewer than ids."""
    valid: tuple[tuple[int, int], ...]
    """The positions whose rows an engine sent, as half open ranges; every other row is a filling."""


def gathered(
    calls: Iterable[tuple[str, RoutedExperts]], length: int, missing: MissingRow
) -> RowExperts | None:
    """Return one table for `length` ids from calls in the order of their turns; None without any row.

    Where several calls cover a position, the first one counts: later ones computed it again. Linear in the
    bytes, whichever positions the calls cover. Raises `InputError` where calls differ in type or layers.

    >>> first = RoutedExperts(data=bytes([1, 2]), dtype="uint8", shape=(2, 1))
    >>> later = RoutedExperts(data=bytes([7, 8, 9, 10]), dtype="uint8", shape=(4, 1))
    >>> table = gathered([("a", first), ("b", later)], 5, MissingRow.SHORTER)
    >>> list(table.data), table.shape, table.valid
    ([1, 2, 9, 10], (4, 1), ((0, 4),))
    >>> table = gathered([("a", first)], 3, MissingRow.REPEAT)
    >>> list(table.data), table.valid
    ([1, 2, 2], ((0, 2),))
    """
    known = list(calls)
    if not known:
        return None
    kind = known[0][1].kind
    for name, experts in known:
        if experts.kind != kind:
            raise InputError(
                f"call {name!r} has routed experts of {experts.kind}, call {known[0][0]!r} of {kind}: "
                "give all calls of a conversation the same dtype and layers"
            )
    taken = _taken((experts for _, experts in known), length)
    end = max((stop for _, stop, _ in taken), default=0) if missing is MissingRow.SHORTER else length
    pieces = _filled(taken, end, prod(kind[1]) * SIZES[kind[0]], missing)
    valid = tuple(_joined((start, stop) for start, stop, _ in taken))
    return RowExperts(data=b"".join(pieces), dtype=kind[0], shape=(end, *kind[1]), valid=valid)


def _taken(known: Iterable[RoutedExperts], length: int) -> list[tuple[int, int, memoryview]]:
    """Return the rows that nobody sent before, with their positions, in the order of these."""
    holes, found = [(0, length)], []
    for experts in known:
        first = bisect_right(holes, experts.start, key=itemgetter(1))
        last = bisect_left(holes, experts.stop, key=itemgetter(0))
        met = holes[first:last]
        inside = [(max(start, experts.start), min(stop, experts.stop)) for start, stop in met]
        found += [(start, stop, experts.cut(start, stop)) for start, stop in inside if start < stop]
        holes[first:last] = _left(met, experts)
    return sorted(found, key=itemgetter(0))


def _left(met: list[tuple[int, int]], experts: RoutedExperts) -> list[tuple[int, int]]:
    """Return what stays open of holes that rows reach into."""
    before = [(start, experts.start) for start, _ in met[:1] if start < experts.start]
    return before + [(experts.stop, stop) for _, stop in met[-1:] if experts.stop < stop]


def _filled(
    taken: Iterable[tuple[int, int, memoryview]], end: int, size: int, missing: MissingRow
) -> Iterator[bytes | memoryview]:
    """Yield the rows with fillings between them, up to `end`."""
    done, last = 0, memoryview(bytes(size))
    for start, stop, rows in [*taken, (end, end, memoryview(b""))]:
        yield bytes(last if missing is MissingRow.REPEAT else size) * (start - done)
        yield rows
        done, last = stop, rows[-size:] if rows else last


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch."""
    found: list[tuple[int, int]] = []
    for start, stop in ranges:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found
