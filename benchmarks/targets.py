"""Targets: figures and the limits that they should keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from benchmarks.clock import growth
from benchmarks.measure import LINEAR, Point
from benchmarks.programs import BEST, FLOOR, KNOWN, LISTS, SHARED

TURNS = 1_000
"""Turns at which lists and trajectories are compared with the floor."""


@attrs.frozen
class Target:
    """A figure and its upper limit."""

    name: str
    value: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether the figure is within the limit."""
        return self.value <= self.limit


def warm(points: Iterable[Point], case: str, program: str) -> dict[int, float]:
    """Return a program's warm seconds by turns. All points must have the same tokens a message."""
    chosen = [point for point in points if (point.case, point.program) == (case, program)]
    return {point.turns: point.timing.warm for point in chosen if point.timing is not None}


def exponent(points: Sequence[Point], case: str, program: str) -> float | None:
    """Return the exponent of a program's growth over the number of turns."""
    seconds = warm(points, case, program)
    return growth(list(seconds), list(seconds.values()))


def targets(points: Sequence[Point], tokens: int) -> Iterator[Target]:
    """Yield the targets of the points with `tokens` tokens a message."""
    chosen = [point for point in points if point.tokens == tokens]
    base = warm(chosen, LINEAR, FLOOR)
    said = f"{tokens:,} tokens a message"
    for program, limit in ((LISTS, 1.3), (KNOWN, 1.3), (SHARED, 0.1), (BEST, 0.1)) if TURNS in base else ():
        ratio = warm(chosen, LINEAR, program)[TURNS] / base[TURNS]
        yield Target(f"{program}, {TURNS:,} turns, {said}: multiple of the floor", ratio, limit)
    for program in (SHARED, BEST):
        yield Target(f"{program}, {said}: growth", exponent(chosen, LINEAR, program) or 0.0, 0.1)
    for case in {point.case: None for point in chosen if point.case != LINEAR}:
        yield Target(f"{case}, {said}: growth", exponent(chosen, case, "tito") or 0.0, 1.1)
