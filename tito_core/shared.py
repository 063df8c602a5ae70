"""Immutable sequences that share the prefix which they extend.

Appending costs the length of the new part. The older sequence is unchanged, and any number of branches may
extend it. A rollout of T turns therefore stores its ids and messages once, not T times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any, Self, TypeVar, cast, overload

import attrs

T_co = TypeVar("T_co", covariant=True)


class Chain:
    """A link of a linked list: it extends its `parent`, and `length` counts both."""

    __slots__ = ()
    parent: Any
    length: int

    def links(self) -> Iterator[Self]:
        """Yield this link and every link that it extends, newest first."""
        link: Any = self  # all links are of one class: a cast per link took longer than the rest of the loop
        while link is not None:
            yield link
            link = link.parent

    def extends(self, older: Chain) -> bool:
        """Return whether `older` itself, not an equal link, is part of this chain."""
        as_long = takewhile(lambda link: link.length >= older.length, self.links())
        return any(link is older for link in as_long)


SHOWN = 8
"""Items that a repr shows."""


@attrs.frozen(eq=False, repr=False, weakref_slot=False)
class Shared(Chain, Sequence[T_co]):
    """A chain of parts, the newest last. Reading walks the parts, about three per turn.

    Attributes:
        part: The items that this link adds to its parent. The chain owns it.
        parent: The sequence that this one extends; None for the first.
        length: Items in the whole chain.

    >>> first = Shared((1, 2))
    >>> left, right = Shared((3,), first), Shared((4, 5), first)
    >>> list(left), list(right), right[-1], left[1:]
    ([1, 2, 3], [1, 2, 4, 5], 5, [2, 3])
    """

    part: Sequence[T_co]
    parent: Shared[T_co] | None = None
    length: int = attrs.field(init=False)

    @length.default
    def _count(self) -> int:
        return len(self.part) + (0 if self.parent is None else self.parent.length)

    @property
    def older(self) -> Self | None:
        """The parent, typed as this class."""
        return cast("Self | None", self.parent)

    @property
    def start(self) -> int:
        """Position of the first item that this link adds to its parent."""
        return self.length - len(self.part)

    def parts(self) -> list[Sequence[T_co]]:
        """Return the parts, oldest first."""
        parts = []
        link: Any = self
        while link is not None:  # twice as fast as iterating over `links`, and every stitch needs it
            parts.append(link.part)
            link = link.parent
        parts.reverse()
        return parts

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[T_co]:
        return chain.from_iterable(self.parts())

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        if isinstance(index, slice):
            return self._slice(index)
        position = index + self.length if index < 0 else index
        link: Any = self if position < self.length else None
        while link is not None and position >= 0:  # inlined as in `parts`
            start = link.length - len(link.part)
            if position >= start:
                return cast("T_co", link.part[position - start])
            link = link.parent
        raise IndexError(f"index {index} is outside a sequence of {self.length}")

    def _slice(self, index: slice) -> list[T_co]:
        start, stop, step = index.indices(self.length)
        if step != 1:
            return list(self)[index]
        first = self.start
        if start >= first:  # most reads are of the newest part
            return list(self.part[start - first : max(stop, start) - first])
        return list(chain.from_iterable(self._cuts(start, stop)[::-1]))

    def _cuts(self, start: int, stop: int) -> list[Sequence[T_co]]:
        """Return the pieces between two positions, newest first, reading no part outside them."""
        links = takewhile(lambda link: link.length > start, self.links())
        parts = ((link.part, link.start) for link in links)
        return [part[max(start - first, 0) : max(stop - first, 0)] for part, first in parts]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if hasattr(other, "tolist"):  # an array would compare each item, or raise
            return bool(list(self) == other.tolist())
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return self.length == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have no hash

    def __repr__(self) -> str:
        shown = [repr(item) for item in self[:SHOWN]]
        if self.length > SHOWN:
            shown.append(f"... {self.length - SHOWN} more")
        return f"{type(self).__name__}([{', '.join(shown)}])"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_items, (list(self),)

    @classmethod
    def from_items(cls, items: Iterable[Any]) -> Self:
        """Return an unshared sequence of `items`. Pickles hold this form: a long chain would recurse."""
        return cls(tuple(items))
