"""How long work takes: first calls on fresh inputs apart from later ones, setup outside the clock.

The collector is off while the clock runs, as in `timeit`: it would charge one program for another's garbage.
Only the standard library is needed: peers are timed by the same clock in environments of their own.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Work = Callable[[], Any]
Prepare = Callable[[], Work]
"""Makes fresh inputs, and returns the work on them."""

FIRSTS = 3
BLOCKS, CALLS = 5, 5
WARMING = 0.02
"""Seconds of calls that go before those of a block that count, and again of those: what calls meet in the
caches is what other programs left there, and it takes a hundred short calls until they meet their own."""
SECONDS = 1.0
"""No block of a program begins after so much of its time; a call that takes longer is made once more."""


class Timing(NamedTuple):
    """Seconds."""

    cold: float
    """The median of first calls, each on inputs just made."""
    warm: float
    """The median of later calls on the same inputs."""
    low: float
    """A quarter of the later calls took less."""
    high: float
    """A quarter of them took more."""

    @classmethod
    def of(cls, cold: Sequence[float], warm: Sequence[float]) -> Timing:
        """Sum up calls."""
        low, middle, high = statistics.quantiles([*warm, *warm], n=4)  # twice, so that one will do
        return cls(statistics.median(cold), middle, low, high)

    @property
    def spread(self) -> float:
        """The distance between the quarters, as a part of the median."""
        return (self.high - self.low) / self.warm if self.warm else 0.0


def once(work: Work) -> float:
    """Return the seconds of one call, what it returns freed outside the clock."""
    started = time.perf_counter()
    held = work()
    taken = time.perf_counter() - started
    del held
    return taken


def race(programs: Mapping[str, Prepare]) -> dict[str, Timing]:
    """Time programs in turns, a few calls of each at a time, so that a slow minute meets all of them."""
    cold: dict[str, list[float]] = {name: [] for name in programs}
    works: dict[str, Work] = {}
    for attempt in range(FIRSTS):
        for name, prepare in programs.items():
            if not attempt or sum(cold[name]) < SECONDS:
                works[name] = prepare()
                cold[name] += _quietly(works[name], 1)
    warm = _warm(works, {name: max(times) for name, times in cold.items()})
    return {name: Timing.of(cold[name], warm[name]) for name in programs}


def _warm(works: Mapping[str, Work], first: Mapping[str, float]) -> dict[str, list[float]]:
    """Return later calls, the first ones of each block left out."""
    warm: dict[str, list[float]] = {name: [] for name in works}
    for number in range(BLOCKS):
        for name, work in works.items():
            if first[name] > SECONDS:
                warm[name] += [] if number else _quietly(work, 1)
            elif not number or sum(warm[name]) < SECONDS:
                calls = CALLS + int(WARMING / first[name])
                warm[name] += _quietly(work, 1 + 2 * calls)[1 + calls :]
    return warm


def _quietly(work: Work, calls: int) -> list[float]:
    gc.collect()
    gc.disable()
    try:
        return [once(work) for _ in range(calls)]
    finally:
        gc.enable()


def growth(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the exponent of growth: the slope of the line through the logarithms, None for one size.

    >>> growth([10, 100, 1000], [2, 20, 200])
    1.0
    """
    if len(sizes) < 2:  # noqa: PLR2004  # a line needs two points
        return None
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    return round(statistics.linear_regression(x, y).slope, 3)
