"""Token ids: immutable shared sequences of integers from 0 to 2**32 - 1."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from operator import index
from typing import Self, SupportsIndex, cast

import attrs

from .checks import short_repr
from .errors import InputError
from .shared import Shared

PACKED = "I"
"""The array type of packed ids: an unsigned C int, four bytes on every platform of CPython."""
UNORDERED: tuple[type, ...] = (str, bytes, bytearray, AbstractSet, Mapping)
"""What can be iterated over but holds text, or has no order."""


@attrs.frozen(eq=False, repr=False, weakref_slot=False)
class Ids(Shared[int]):
    """Exact token ids; equal to any sequence of the same integers.

    Attributes:
        part: The ids that this link adds to its parent.
        parent: The ids that this one extends; None for the first.
        length: Ids in all.

    >>> prompt = Ids.of([5, 6, 7])
    >>> longer = prompt.then((8, 9))
    >>> longer
    Ids([5, 6, 7, 8, 9])
    >>> longer == [5, 6, 7, 8, 9], longer.extends(prompt)
    (True, True)
    """

    @classmethod
    def of(cls, ids: Sequence[int], name: str = "ids") -> Self:
        """Return `ids` as `Ids`, checked once; `name` is what an error calls them.

        Raises `InputError` for anything but whole numbers from 0 to 2**32 - 1.
        """
        return ids if isinstance(ids, cls) else cls(checked(ids, name))

    def then(self, part: Sequence[int]) -> Self:
        """Return these ids followed by `part`, which must hold valid ids already; costs O(1)."""
        return type(self)(part, self) if part else self

    def tolist(self) -> list[int]:
        """Return a new list: one copy, and the only O(history) work in the kernel."""
        first, *others = self.parts()
        if len(first) < self.length // 2:
            first, others = (), [first, *others]
        copied: list[int] = []
        for part in others:
            copied += part
        # The longest part goes in last: appending to a list of 4M ids reallocates it (19 ms instead of 7).
        copied[:0] = first
        return copied

    def tobytes(self) -> bytes:
        """Return the ids as bytes, four per id in the machine's byte order, as numpy and torch read them.

        >>> list(memoryview(Ids.of([1, 2]).then((3,)).tobytes()).cast("I"))
        [1, 2, 3]
        """
        return b"".join([part if isinstance(part, array) else array(PACKED, part) for part in self.parts()])

    def packed(self) -> Self:
        """Return the same ids stored at four bytes each; parts that are packed already stay shared."""
        loose = list(takewhile(lambda link: not isinstance(link.part, array), self.links()))
        grown = loose[-1].older if loose else self
        for link in reversed(loose):
            grown = type(self)(array(PACKED, link.part), grown)
        return grown if grown is not None else self

    def starts_with(self, older: Ids) -> bool:
        """Return whether `older` is a prefix: by identity where it is shared, else by value."""
        if self.extends(older):
            return True
        return self.length >= older.length and self.tolist()[: older.length] == older.tolist()

    @classmethod
    def from_items(cls, items: Iterable[int]) -> Self:
        """Return unshared, packed ids."""
        return cls(array(PACKED, items))


def checked(ids: Sequence[int], name: str) -> tuple[int, ...]:
    """Return `ids` as a tuple, or raise `InputError` naming the first item that is not an id.

    >>> checked([3, 1, 4], "prompt_ids")
    (3, 1, 4)
    >>> checked([3, -1], "prompt_ids")
    Traceback (most recent call last):
    tito_core.errors.InputError: prompt_ids[1] is -1: an id is a whole number from 0 to 4294967295
    """
    if type(ids) not in (list, tuple) and (
        isinstance(ids, UNORDERED) or getattr(ids, "ndim", 1) == 0 or not isinstance(ids, Iterable)
    ):
        instead = "call it, as in suffix_ids(tokenize)" if callable(ids) else "give a flat list"
        raise InputError(f"{name} must be a sequence of ids, not {type(ids).__name__}: {instead}")
    items = tuple(ids)
    try:
        numbers = array(PACKED, items)
    except (TypeError, OverflowError, ValueError):
        raise InputError(_complaint(items, name)) from None
    kinds = list(map(type, items))  # twice as fast as looking at each item in Python
    if kinds.count(int) == len(items):
        return items
    if bool in kinds:  # an array takes True for 1
        raise InputError(_complaint(items, name))
    return tuple(numbers)


def _complaint(items: tuple[object, ...], name: str) -> str:
    """Return an error text that names the first item which cannot be an id."""
    position = next(place for place, item in enumerate(items) if isinstance(item, bool) or not _is_id(item))
    shown = short_repr(items[position])
    return f"{name}[{position}] is {shown}: an id is a whole number from 0 to 4294967295"


def _is_id(item: object) -> bool:
    try:
        return 0 <= index(cast("SupportsIndex", item)) < 2**32
    # An array of several numbers has an `__index__` that raises.
    except (TypeError, OverflowError, ValueError):
        return False
