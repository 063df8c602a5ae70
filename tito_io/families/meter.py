"""Measure what one render uses: processor time, and the memory of the values that it holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from sys import getrefcount, getsizeof
from typing import TYPE_CHECKING, Any, TypeVar

from .limits import LimitReached, TemplateLimits

if TYPE_CHECKING:
    from datetime import datetime

T = TypeVar("T")
STEP = 64
"""Bytes that every step counts, whatever it makes."""
SMALL = 256
"""Values of fewer bytes are counted and never given back: looking for them would cost more than they do."""
_STEPS = 16
"""Steps between two looks at the clock."""
_WORK_BITS = 12
"""Reading so many characters, as a power of two, takes as long as a step."""
_SHARE = 8
"""The memory is looked through each time that this share of it was counted."""


def _references(values: dict[int, Any]) -> list[tuple[int, int]]:
    """Return the key of each value, and how many references it has; Python's versions count differently."""
    return [(key, getrefcount(value)) for key, value in values.items()]


_UNUSED = _references({0: object()})[0][1]
"""The references of a value that only the dict holds."""


class RenderMeter:
    """The time of one render, and the processor time and the memory that it has left.

    Every value that an operation makes is counted. Once an eighth of the memory was counted, values that
    only the meter refers to are given back. So a text that replaces its predecessor in a loop counts once.

    Attributes:
        now: The time that the render prints.
        used: Bytes that were counted and not given back.
    """

    __slots__ = ("_earliest", "_ends", "_held", "_limits", "_next", "_sizes", "_steps", "now", "used")

    def __init__(self, limits: TemplateLimits, now: datetime) -> None:
        """Start the meter for a render at `now`."""
        self.now = now
        self.used = 0
        self._limits = limits
        self._ends = time.thread_time() + limits.seconds
        # A thread cannot use more processor time than passes, and asking for what passes takes a hundredth.
        self._earliest = time.perf_counter() + limits.seconds
        self._steps = _STEPS
        self._held: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}
        self._next = limits.memory // _SHARE

    def tick(self, size: int = STEP, work: int = 0) -> None:
        """Count a step that makes `size` bytes and reads `work` characters.

        The clock is read at every 16th step, or once a long text was read: reading it costs more than a step.
        """
        self.used += size
        self._steps -= 1 + (work >> _WORK_BITS)
        if self._steps <= 0:
            self._look()

    def count(self, value: T, further: int = 0) -> T:
        """Count a new value, which holds `further` bytes that are new, too; return the value."""
        if isinstance(value, str) and len(value) < STEP:  # most values
            self.used += SMALL // 2
            return value
        size = getsizeof(value) + further
        if isinstance(value, list | tuple):
            size += STEP * len(value)
        self.used += size
        if size >= SMALL:
            self._hold(value, size)
        return value

    def _hold(self, value: Any, size: int) -> None:
        """Remember a value, so that it can be given back; one that is known was counted before."""
        if id(value) in self._held:
            self.used -= size
        else:
            self._held[id(value)] = value
            self._sizes[id(value)] = size
        if self.used > self._next:
            self._look()

    def _look(self) -> None:
        self._steps = _STEPS
        if time.perf_counter() > self._earliest and time.thread_time() > self._ends:
            raise LimitReached("more processor time than the template is allowed")
        if self.used > self._next:
            self._give_back()

    def _give_back(self) -> None:
        for key, count in _references(self._held):
            if count <= _UNUSED:
                del self._held[key]
                self.used -= self._sizes.pop(key)
        share = self._limits.memory // _SHARE
        self._next = self.used + share
        if self._next > self._limits.memory:
            raise LimitReached(f"values of more than {self._limits.memory - share} bytes together")


_METER: ContextVar[RenderMeter] = ContextVar("meter")
meter = _METER.get
"""Return the meter of the render that runs in this thread."""


@contextmanager
def metered(limits: TemplateLimits, now: datetime) -> Iterator[None]:
    """Measure what is done in this context as one render."""
    token = _METER.set(RenderMeter(limits, now))
    try:
        yield
    finally:
        _METER.reset(token)
