"""Everything that is measured, as one plain value. Each case first sees that all programs agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import attrs

from benchmarks.clock import Prepare, Timing, growth, race
from benchmarks.hard import SHAPES, Shape, expected
from benchmarks.history import History
from benchmarks.index import Asked
from benchmarks.peers.given import digest
from benchmarks.programs import FLOOR, OWN, floor, stitched

LINEAR = "linear"
SLOW = 5.0
"""Seconds. A program is left out where its call would take longer, by the growth seen so far."""
QUADRATIC = 2.0
Say = Callable[[str], None]


@attrs.frozen
class Point:
    """One program at one size."""

    case: str
    tokens: int
    """In a message."""
    turns: int
    program: str
    timing: Timing | None
    """None where it was left out."""
    agrees: bool | None
    """Whether its answer is that of the others; None where it has none to give."""


class DisagreementError(AssertionError):
    """Programs that are compared gave different answers."""


def linear(made: Sequence[History], peers: Sequence[Asked], say: Say) -> Iterator[Point]:
    """Measure a turn at the end of histories of growing length."""
    seen: dict[str, list[tuple[int, float]]] = {}
    for history in made:
        say(f"a turn after {history.turns:,} of {history.tokens:,} tokens a message")
        slow = [name for name, times in seen.items() if expected_seconds(times, history.turns) > SLOW]
        for point in _turn(history, peers, slow):
            if point.timing is not None:
                seen.setdefault(point.program, []).append((history.turns, point.timing.cold))
            yield point


def expected_seconds(times: Sequence[tuple[int, float]], turns: int) -> float:
    """Return what a call will take, by the last two sizes; quadratic at the most.

    >>> expected_seconds([(10, 1.0), (100, 10.0)], 1000)
    100.0
    """
    (last, seconds), exponent = times[-1], 1.0
    if len(times) > 1:
        slope = growth([size for size, _ in times[-2:]], [taken for _, taken in times[-2:]])
        exponent = min(max(slope or 0.0, 0.0), QUADRATIC)
    return round(seconds * math.pow(turns / last, exponent), 6)


def _turn(history: History, peers: Sequence[Asked], slow: Sequence[str]) -> Iterator[Point]:
    point = partial(Point, LINEAR, history.tokens, history.turns)
    chosen = [program for program in OWN if program.name not in slow]
    answers = {program.name: digest(program.answer(history)) for program in chosen}
    right = answers[OWN[0].name]
    works: dict[str, Prepare] = {program.name: partial(program.prepare, history) for program in chosen}
    timings = race({FLOOR: partial(floor, history), **works})
    yield point(FLOOR, timings[FLOOR], None)
    for name, answer in answers.items():
        yield point(name, timings[name], _agreed(name, answer, right))
    for peer in peers:
        for name, (answer, timing) in peer.timings(history, slow).items():
            yield point(name, timing, _agreed(name, answer, right))
    for name in slow:
        yield point(name, None, None)


def _agreed(name: str, answer: str | None, right: str | None) -> bool:
    if right is None or answer != right:
        raise DisagreementError(f"{name} answers otherwise than {OWN[0].name}: nothing can be compared")
    return True


def hard(made: Sequence[History], say: Say) -> Iterator[Point]:
    """Measure histories that branch or nearly match."""
    for shape in SHAPES:
        for history in made:
            say(f"{shape.name}, {history.turns:,} turns")
            point = partial(Point, shape.name, history.tokens, history.turns)
            timings = race({FLOOR: partial(floor, history), "tito": partial(shape.work, history)})
            yield point(FLOOR, timings[FLOOR], None)
            yield point("tito", timings["tito"], _right(shape, history))


def _right(shape: Shape, history: History) -> bool:
    """See that the step found is the one that a plain comparison finds."""
    found, step = stitched(shape.work(history)()), expected(shape, history)
    if (found is None) != (step is None) or (found and step and found[: len(step)] != step):
        raise DisagreementError(f"{shape.name}: another step was continued")
    return True
