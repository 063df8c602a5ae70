"""Print measurements as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.copies import Copy
from benchmarks.measure import Point
from benchmarks.programs import BEST, FLOOR
from benchmarks.targets import Target, exponent, warm

TIMES = "warm ms (median ± half the interquartile range), cold ms"


def print_points(console: Console, points: Sequence[Point]) -> None:
    """Print a table for each case and number of tokens."""
    for case, tokens in {(point.case, point.tokens): None for point in points}:
        chosen = [point for point in points if (point.case, point.tokens) == (case, tokens)]
        console.print(f"\n[bold]{case}, {tokens:,} tokens a message[/]; columns are turns: {TIMES}")
        console.print(_times(chosen))
        console.print(
            f"\n... as multiples of the floor{', and of `tito: Trajectory, profile`' * _has_best(chosen)}"
        )
        console.print(_ratios(chosen))


def _has_best(points: Iterable[Point]) -> bool:
    return any(point.program == BEST for point in points)


def _names(points: Iterable[Point]) -> list[str]:
    return list({point.program: None for point in points})


def _sizes(points: Iterable[Point]) -> list[int]:
    return sorted({point.turns for point in points})


def _table(columns: Iterable[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    return table


def _times(points: Sequence[Point]) -> Table:
    sizes, by_place = _sizes(points), {(point.program, point.turns): point for point in points}
    table = _table(["", *(f"{size:,}" for size in sizes), "growth"])
    for name in _names(points):
        grown = exponent(points, points[0].case, name)
        cells = [_time(by_place.get((name, size))) for size in sizes]
        table.add_row(name, *cells, "" if grown is None else f"{grown:.2f}")
    return table


def _time(point: Point | None) -> str:
    if point is None or point.timing is None:
        return "too slow"
    timing = point.timing
    return f"{milli(timing.warm)} ±{timing.spread / 2:.0%}, {milli(timing.cold)}"


def milli(seconds: float) -> str:
    """Format seconds as milliseconds with three digits.

    >>> milli(0.00012345), milli(1.5)
    ('0.123', '1,500')
    """
    value = seconds * 1e3
    return f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"  # noqa: PLR2004  # digits


def _ratios(points: Sequence[Point]) -> Table:
    """Return a table of every program as a multiple of the floor, and of tito's fastest program."""
    case, sizes = points[0].case, _sizes(points)
    bases = [warm(points, case, FLOOR), warm(points, case, BEST)]
    table = _table(["", *(f"{size:,}" for size in sizes)])
    for program in _names(points):
        values = warm(points, case, program)
        pairs = ((values.get(size), [base.get(size) for base in bases]) for size in sizes)
        table.add_row(program, *(_pair(seconds, beside) for seconds, beside in pairs))
    return table


def _pair(seconds: float | None, bases: Sequence[float | None]) -> str:
    return "" if seconds is None else ", ".join(_times_of(seconds / base) for base in bases if base)


def _times_of(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.2f}x"  # noqa: PLR2004  # three digits are significant


def print_copies(console: Console, values: Iterable[Copy], ids: int) -> None:
    """Print the copies of a history with `ids` ids."""
    console.print(f"\n[bold]{ids:,} ids[/]: ms, warm medians")
    table = _table(["", "work", "one copy", "ratio"])
    for one in values:
        table.add_row(one.name, milli(one.timing.warm), milli(one.floor.warm), f"{one.ratio:.2f}x")
    console.print(table)


def print_figures(console: Console, title: str, values: dict[str, float], form: str) -> None:
    """Print figures other than times."""
    console.print(f"\n[bold]{title}[/]")
    table = _table(["", ""])
    for name, value in values.items():
        table.add_row(name, format(value, form))
    console.print(table)


def print_targets(console: Console, values: Iterable[Target]) -> None:
    """Print the targets."""
    console.print("\n[bold]targets[/]")
    table = _table(["", "is", "at most", ""])
    for target in values:
        style = None if target.met else "red"
        figures = (f"{target.value:.2f}", f"{target.limit:.2f}", "met" if target.met else "missed")
        table.add_row(target.name, *figures, style=style)
    console.print(table)
