"""Time programs: first calls on fresh inputs (cold) and later calls (warm), without their setup.

The garbage collector is off while the clock runs, as in `timeit`: otherwise one program would pay for
another's garbage. This module needs the standard library only, because peers use it in their environments.
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
"""Builds fresh inputs and returns the work on them."""

FIRSTS = 3
"""Cold calls of each program."""
BLOCKS, CALLS = 5, 5
WARMING = 0.02
"""Seconds of warm-up calls before each block, and of the timed calls after them.

The processor's caches hold what other programs left there. It takes about a hundred short calls until they
hold a program's own data.
"""
SECONDS = 1.0
"""A program starts no further block after this much timed work. A longer call is timed once more only."""


class Timing(NamedTuple):
    """Seconds of a call.

    Attributes:
        cold: Median of first calls, each on fresh inputs.
        warm: Median of later calls on the same inputs.
        low: Lower quartile of the later calls.
        high: Upper quartile of the later calls.
    """

    cold: float
    warm: float
    low: float
    high: float

    @classmethod
    def of(cls, cold: Sequence[float], warm: Sequence[float]) -> Timing:
        """Summarize the seconds of cold and warm calls."""
        low, middle, high = statistics.quantiles(
            [*warm, *warm], n=4
        )  # `quantiles` needs two values: one call is enough
        return cls(statistics.median(cold), middle, low, high)

    @property
    def spread(self) -> float:
        """The distance between the quartiles, as a fraction of the median."""
        return (self.high - self.low) / self.warm if self.warm else 0.0


def once(work: Work) -> float:
    """Return the seconds of one call. Its result is freed after the clock has stopped."""
    started = time.perf_counter()
    result = work()
    taken = time.perf_counter() - started
    del result
    return taken


def race(programs: Mapping[str, Prepare]) -> dict[str, Timing]:
    """Time programs by name in alternation, so that a slow minute of the machine affects all of them."""
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
    """Return the seconds of warm calls, without the warm-up calls of each block."""
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
    """Return the exponent of growth: the slope in a log-log plot, None for a single size.

    >>> growth([10, 100, 1000], [2, 20, 200])
    1.0
    """
    if len(sizes) < 2:  # noqa: PLR2004  # a line needs two points
        return None
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    return round(statistics.linear_regression(x, y).slope, 3)
