"""Limits of what a chat template may use while it renders: text, values, memory and processor time.

Templates are untrusted and run in this process, where nothing can interrupt a single operation of the
interpreter. So the size of an operation's result is computed before the operation runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from attrs import frozen
from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

SCALARS = frozenset({str, int, float, bool, type(None)})
"""Types that hold no other values."""

INTEGER_BITS = 1 << 9
"""The widest integer that a template may compute. Templates that are in use count messages."""

WORK = 32
"""An operation may take this many times as long as copying the longest text: half a second by default."""

_CONTAINERS: tuple[type, ...] = (
    list,
    tuple,
    set,
    frozenset,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)


class LimitReached(SecurityError):  # noqa: N818  # not an error of this library but an event of a render
    """A template exceeds its `TemplateLimits`. Templates cannot catch it."""


@frozen(kw_only=True)
class TemplateLimits:
    """Limits of one render. The defaults are far above any conversation, and harmless.

    Attributes:
        characters: Longest text, of the render or of any value in it.
        items: Longest list, and the most parts of a value, counted through all levels.
        seconds: Processor time of the rendering thread. Wall time would make a busy machine refuse what an
            idle one renders.
        memory: Bytes that the values of one render may hold together. One operation may need as much again.
    """

    characters: int = 1 << 25
    items: int = 1 << 20
    seconds: float = 20.0
    memory: int = 1 << 30

    def text(self, length: int) -> int:
        """Return `length` if a text may be that long.

        >>> TemplateLimits(characters=10).text(7)
        7
        """
        if length > self.characters:
            raise LimitReached(f"a text of {length} characters, where {self.characters} are allowed")
        return length

    def count(self, length: int) -> int:
        """Return `length` if a list may be that long."""
        if length > self.items:
            raise LimitReached(f"a list of {length} items, where {self.items} are allowed")
        return length

    def work(self, size: int, factor: int) -> None:
        """Refuse an operation that takes `factor` times as long as copying `size` characters.

        >>> TemplateLimits(characters=10).work(2, 5)
        """
        if size * factor > WORK * self.characters:
            raise LimitReached(f"an operation as long as copying {size * factor} characters")

    def integer(self, bits: float) -> None:
        """Refuse an integer of more than `INTEGER_BITS`."""
        if bits > INTEGER_BITS:
            raise LimitReached(f"an integer wider than {INTEGER_BITS} bits")

    def weigh(self, value: Any) -> int:
        """Return about how many characters printing `value` takes; a part that is held twice counts twice.

        A few lists that hold each other are a tree too large to print, compare or hash. So the walk stops at
        the limit.

        >>> TemplateLimits().weigh("abc"), TemplateLimits().weigh(["abc", "abc"])
        (5, 14)
        """
        total, parts, waiting = 0, 0, [value]
        while waiting:
            item = waiting.pop()
            size, inner = (len(item) + 2, ()) if type(item) is str else _parts(item)  # most parts are texts
            total, parts = total + size, parts + 1
            if total > self.characters or parts > self.items:
                raise LimitReached(f"a value of more than {self.items} parts or {self.characters} characters")
            waiting.extend(inner)
        return total

    def listed(self, values: Iterable[Any]) -> list[Any]:
        """Return what an iterator yields as a list, if it is short enough."""
        listed = list(islice(values, self.items + 1))
        self.count(len(listed))
        return listed

    def joined(self, pieces: Iterable[str]) -> str:
        """Join `pieces`, which may be endless.

        >>> TemplateLimits().joined(iter(["to", "ken"]))
        'token'
        """
        joined, total = [], 0
        for piece in pieces:
            total += len(piece)
            if total > self.characters:
                self.text(total)
            joined.append(piece)
        return "".join(joined)

    def measured(self, result: Any) -> Any:
        """Return `result` if it is not too large. Tuples are weighed as deep as they go: they may be keys."""
        if isinstance(result, str | bytes):
            self.text(len(result))
        elif isinstance(result, list):
            self.count(len(result))
        elif isinstance(result, tuple):
            self.weigh(result)
        elif isinstance(result, int):
            self.integer(result.bit_length())
        return result


def _parts(item: Any) -> tuple[int, Iterable[Any]]:
    """Return the weight of an item itself, and the values that it holds.

    Types are tested with `issubclass`: `isinstance` on a namespace runs Python code, which is slow.
    """
    kind = type(item)
    if issubclass(kind, str | bytes):
        return len(item) + 2, ()
    if issubclass(kind, dict):  # by the methods of `dict`: to weigh is not to read (see `RecordingDict`)
        return 2 * dict.__len__(item) + 2, [part for pair in dict.items(item) for part in pair]
    if issubclass(kind, _CONTAINERS):
        return len(item) + 2, item
    if issubclass(kind, Namespace):
        return _parts(object.__getattribute__(item, "_Namespace__attrs"))
    return 2, ()
