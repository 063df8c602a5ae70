"""Time all programs on all histories, after checking that they return the same ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import attrs

from benchmarks.branching import SHAPES, Shape, expected
from benchmarks.clock import Prepare, Timing, growth, race
from benchmarks.history import History
from benchmarks.peer_process import PeerProcess
from benchmarks.peers.history_file import digest
from benchmarks.programs import FLOOR, OWN, floor, stitched

LINEAR = "linear"
"""Name of the case without branches."""
SLOW = 5.0
"""Seconds. A program is left out where a call would take longer, extrapolated from smaller sizes."""
QUADRATIC = 2.0
"""Largest exponent of the extrapolation."""
Report = Callable[[str], None]


@attrs.frozen
class Point:
    """One program at one size.

    Attributes:
        case: Name of the case: linear, or a shape with branches.
        tokens: Tokens of each message.
        turns: Turns of the history.
        program: Name of the program.
        timing: None where the program was left out.
        agrees: Whether its answer is the expected one; None for programs without an answer.
    """

    case: str
    tokens: int
    turns: int
    program: str
    timing: Timing | None
    agrees: bool | None


class DisagreementError(AssertionError):
    """Two programs returned different ids for the same prompt."""


def linear_points(
    histories: Sequence[History], peers: Sequence[PeerProcess], report: Report
) -> Iterator[Point]:
    """Time the next turn of each history, shortest first, by every program."""
    seen: dict[str, list[tuple[int, float]]] = {}
    for history in histories:
        report(f"a turn after {history.turns:,} of {history.tokens:,} tokens a message")
        slow = [name for name, times in seen.items() if expected_seconds(times, history.turns) > SLOW]
        for point in _turn(history, peers, slow):
            if point.timing is not None:
                seen.setdefault(point.program, []).append((history.turns, point.timing.cold))
            yield point


def expected_seconds(times: Sequence[tuple[int, float]], turns: int) -> float:
    """Extrapolate the seconds of a call from the last two sizes, with at most quadratic growth.

    >>> expected_seconds([(10, 1.0), (100, 10.0)], 1000)
    100.0
    """
    (last, seconds), exponent = times[-1], 1.0
    if len(times) > 1:
        slope = growth([size for size, _ in times[-2:]], [taken for _, taken in times[-2:]])
        exponent = min(max(slope or 0.0, 0.0), QUADRATIC)
    return round(seconds * math.pow(turns / last, exponent), 6)


def _turn(history: History, peers: Sequence[PeerProcess], slow: Sequence[str]) -> Iterator[Point]:
    point = partial(Point, LINEAR, history.tokens, history.turns)
    chosen = [program for program in OWN if program.name not in slow]
    answers = {program.name: digest(program.answer(history)) for program in chosen}
    right = answers[OWN[0].name]
    works: dict[str, Prepare] = {program.name: partial(program.prepare, history) for program in chosen}
    timings = race({FLOOR: partial(floor, history), **works})
    yield point(FLOOR, timings[FLOOR], None)
    for name, answer in answers.items():
        yield point(name, timings[name], _check_answer(name, answer, right))
    for peer in peers:
        for name, (answer, timing) in peer.timings(history, slow).items():
            yield point(name, timing, _check_answer(name, answer, right))
    for name in slow:
        yield point(name, None, None)


def _check_answer(name: str, answer: str | None, right: str | None) -> bool:
    if right is None or answer != right:
        raise DisagreementError(f"{name} and {OWN[0].name} return different ids: times cannot be compared")
    return True


def branching_points(histories: Sequence[History], report: Report) -> Iterator[Point]:
    """Time stitches of histories that branch or nearly match the prompt."""
    for shape in SHAPES:
        for history in histories:
            report(f"{shape.name}, {history.turns:,} turns")
            point = partial(Point, shape.name, history.tokens, history.turns)
            timings = race({FLOOR: partial(floor, history), "tito": partial(shape.work, history)})
            yield point(FLOOR, timings[FLOOR], None)
            yield point("tito", timings["tito"], _check_step(shape, history))


def _check_step(shape: Shape, history: History) -> bool:
    """Check that the continued step is the one that a plain comparison finds."""
    ids, step = stitched(shape.work(history)()), expected(shape, history)
    if (ids is None) != (step is None) or (ids and step and ids[: len(step)] != step):
        raise DisagreementError(f"{shape.name}: another step was continued")
    return True
