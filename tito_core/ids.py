"""Token ids: an immutable, shared sequence of integers between 0 and 2**32 - 1."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Self, cast

import attrs

from .errors import InputError
from .shared import Shared

PACKED = "I"  # an unsigned C int: four bytes an id where CPython runs today


@attrs.frozen(eq=False, repr=False, weakref_slot=False)
class Ids(Shared[int]):
    """Exact token ids; equal to any sequence of the same integers.

    >>> prompt = Ids.of([5, 6, 7])
    >>> longer = prompt.then((8, 9))
    >>> longer
    Ids([5, 6, 7, 8, 9])
    >>> longer == [5, 6, 7, 8, 9], longer.extends(prompt)
    (True, True)
    """

    @classmethod
    def of(cls, ids: Sequence[int], name: str = "ids") -> Self:
        """Take ids as they come, checked once; `name` is what an error calls them.

        Raises `InputError` for anything but whole numbers from 0 to 2**32 - 1.
        """
        return ids if isinstance(ids, cls) else cls(checked(ids, name))

    def then(self, part: Sequence[int]) -> Self:
        """Return these ids followed by `part`, which must be ids already; costs O(1)."""
        return type(self)(part, self) if part else self

    def tolist(self) -> list[int]:
        """Return a new list: one copy, and the only O(history) work in the kernel."""
        first, *others = self.parts()
        if len(first) < self.length // 2:
            first, others = (), [first, *others]
        copied: list[int] = []
        for part in others:
            copied += part
        copied[:0] = first  # a list of millions that is appended to moves; one that is filled last does not
        return copied

    def tobytes(self) -> bytes:
        """Return the ids in one piece, four bytes each in the machine's order: what numpy and torch read.

        >>> list(memoryview(Ids.of([1, 2]).then((3,)).tobytes()).cast("I"))
        [1, 2, 3]
        """
        return b"".join([part if isinstance(part, array) else array(PACKED, part) for part in self.parts()])

    def packed(self) -> Self:
        """Return the same ids at four bytes each; what is packed already stays shared."""
        loose = []
        for link in self.links():
            if isinstance(link.part, array):
                break
            loose.append(link)
        grown = loose[-1].older if loose else self
        for link in reversed(loose):
            grown = type(self)(array(PACKED, link.part), grown)
        return grown if grown is not None else self

    def starts_with(self, older: Ids) -> bool:
        """Tell whether `older` is a prefix, by identity where it is shared and by value elsewhere."""
        if self.extends(older):
            return True
        return self.length >= older.length and self.tolist()[: older.length] == older.tolist()

    @classmethod
    def from_items(cls, items: Iterable[int]) -> Self:
        """Make unshared, packed ids."""
        return cls(array(PACKED, items))


def checked(ids: Sequence[int], name: str) -> tuple[int, ...]:
    """Return `ids` as a tuple, or raise `InputError` naming the first that is no id.

    >>> checked([3, 1, 4], "prompt_ids")
    (3, 1, 4)
    >>> checked([3, -1], "prompt_ids")
    Traceback (most recent call last):
    tito_core.errors.InputError: prompt_ids[1] is -1: an id is a whole number from 0 to 4294967295
    """
    if type(ids) not in (list, tuple) and (
        isinstance(ids, str | bytes | bytearray) or not isinstance(ids, Iterable)
    ):
        raise InputError(f"{name} must be a sequence of ids, not {type(ids).__name__}")
    held = tuple(ids)
    try:
        numbers = array(PACKED, held)
    except (TypeError, OverflowError, ValueError):
        raise InputError(_complaint(held, name)) from None
    kinds = list(map(type, held))
    if kinds.count(int) == len(held):
        return held
    if bool in kinds:
        raise InputError(_complaint(held, name))
    return tuple(numbers)


def _complaint(held: tuple[object, ...], name: str) -> str:
    """Name the first item that cannot be an id."""
    for position, item in enumerate(held):
        if isinstance(item, bool) or not _is_id(item):
            return f"{name}[{position}] is {_shown(item)}: an id is a whole number from 0 to 4294967295"
    raise AssertionError("unreachable: something was refused")  # pragma: no cover


def _shown(item: object) -> str:
    try:
        return f"{item!r:.60}"
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of thousands of digits"


def _is_id(item: object) -> bool:
    try:
        array(PACKED, [cast("int", item)])
    except (TypeError, OverflowError, ValueError):
        return False
    return True
