"""How much a chat template may use up while it renders.

Templates come from strangers and run in this process, where nothing can interrupt a single operation of
the interpreter. So what an operation would make is weighed before it is made.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

if TYPE_CHECKING:
    from datetime import datetime

SCALARS = frozenset({str, int, float, bool, type(None)})
"""Types that hold no other values: there is nothing to walk through."""

INTEGER_BITS = 1 << 16
"""Widest integer that a template may compute; real ones count messages."""

_CONTAINERS: tuple[type, ...] = (
    list,
    tuple,
    set,
    frozenset,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)
_TICKS_PER_LOOK = 16


class LimitReached(SecurityError):  # noqa: N818  # it is an event of a render, named like jinja2's own
    """A template wants more than its `TemplateLimits`. A template cannot catch it."""


@frozen(kw_only=True)
class TemplateLimits:
    """What one render may use. The defaults are far above any conversation and far below harm."""

    characters: int = field(default=1 << 25)
    """Longest text, of the render or of any value on the way."""

    items: int = field(default=1 << 20)
    """Longest list, and the most parts that a value may have, counted through all that it holds."""

    seconds: float = field(default=20.0)
    """Processor time of the rendering thread: a busy machine must not refuse what an idle one renders."""

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

    def integer(self, bits: float) -> None:
        """Refuse an integer of more than `INTEGER_BITS`."""
        if bits > INTEGER_BITS:
            raise LimitReached(f"an integer wider than {INTEGER_BITS} bits")

    def weigh(self, value: Any) -> int:
        """Return about how many characters printing `value` takes; a part held twice weighs twice.

        A few lists that hold each other make a tree too large to print, compare or hash, so the walk stops
        at the limit.

        >>> TemplateLimits().weigh("abc"), TemplateLimits().weigh(["abc", "abc"])
        (5, 14)
        """
        total, parts, waiting = 0, 0, [value]
        while waiting:
            size, inner = _parts(waiting.pop())
            total, parts = total + size, parts + 1
            if total > self.characters or parts > self.items:
                raise LimitReached(f"a value of more than {self.items} parts or {self.characters} characters")
            waiting.extend(inner)
        return total

    def listed(self, values: Iterable[Any]) -> list[Any]:
        """Return what an iterator yields as a list, if it ends in time."""
        found = list(islice(values, self.items + 1))
        self.count(len(found))
        return found

    def joined(self, pieces: Iterable[str]) -> str:
        """Join `pieces`, which may be endless.

        >>> TemplateLimits().joined(iter(["to", "ken"]))
        'token'
        """
        kept, total = [], 0
        for piece in pieces:
            total += len(piece)
            if total > self.characters:
                self.text(total)
            kept.append(piece)
        return "".join(kept)

    def printable(self, value: Any) -> Any:
        """Return `value` if it is small enough to print, to compare or to hash."""
        if type(value) in SCALARS:
            return value
        self.weigh(value)
        return value


def _parts(item: Any) -> tuple[int, Iterable[Any]]:
    """Return what an item itself weighs, and what it holds.

    Types are asked with `issubclass`: a namespace answers `isinstance` in Python code, and slowly.
    """
    kind = type(item)
    if issubclass(kind, str | bytes):
        return len(item) + 2, ()
    if issubclass(kind, dict):
        return 2 * len(item) + 2, [part for pair in item.items() for part in pair]
    if issubclass(kind, _CONTAINERS):
        return len(item) + 2, item
    if issubclass(kind, Namespace):
        return _parts(object.__getattribute__(item, "_Namespace__attrs"))
    return 2, ()


class RenderMeter:
    """What one render has: its time of day and what is left of its processor time."""

    __slots__ = ("_ends", "_ticks", "now")

    def __init__(self, limits: TemplateLimits, now: datetime) -> None:
        """Start the meter for a render at `now`."""
        self.now = now
        self._ends = time.thread_time() + limits.seconds
        self._ticks = 0

    def tick(self) -> None:
        """Count a step, and look at the clock now and then: asking it costs more than a step."""
        self._ticks += 1
        if self._ticks % _TICKS_PER_LOOK == 0 and time.thread_time() > self._ends:
            raise LimitReached("more processor time than the template is allowed")
