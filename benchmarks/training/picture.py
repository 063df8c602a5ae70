"""Curves by update, one for each arm, with bands from the lowest seed to the highest, as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from pathlib import Path
from statistics import fmean

import attrs

from benchmarks.templating import environment

from .results import Result

WIDTH, HEIGHT, LEFT, TOP, GAP = 340, 210, 52, 62, 44
FLOOR = 1e-8
"""Where a logarithmic axis begins; smaller values are drawn here."""
WINDOW = 5
"""Updates of a moving mean: a reward of 32 games is coarse."""


@attrs.frozen
class Curve:
    """Points of one arm: the mean of its seeds by update, and a band around all of them, in pixels."""

    arm: str
    line: str
    band: str


@attrs.frozen
class Panel:
    """One model in one setting.

    Attributes:
        title: What it shows.
        x: Its left side, in pixels.
        y: Its top.
        ticks: Text and height of each line of the grid.
        updates: Number of updates, at its right side.
        curves: The arms.
    """

    title: str
    x: float
    y: float
    ticks: list[tuple[str, float]]
    updates: int
    curves: list[Curve]


def panel(title: str, place: int, arms: Mapping[str, Sequence[Result]], name: str, *, log: bool) -> Panel:
    """Return the curves of a figure: moving means of each run."""
    x, y = LEFT + place % 2 * (WIDTH + GAP), TOP + place // 2 * (HEIGHT + 64)
    updates = max((one.updates[0]["of"] for runs in arms.values() for one in runs), default=1)
    top, low = (4.0, log10(FLOOR)) if log else (1.0, 0.0)

    def height(value: float) -> float:
        shown = log10(max(value, FLOOR)) if log else value
        return y + HEIGHT * (1 - (min(max(shown, low), top) - low) / (top - low))

    def at(update: int, value: float) -> str:
        return f"{x + WIDTH * update / max(updates - 1, 1):.1f},{height(value):.1f}"

    curves = []
    for arm, runs in arms.items():
        seeds = [_moving([line[name] for line in run.updates]) for run in runs]
        by_update = [
            [one[step] for one in seeds if step < len(one)] for step in range(max(map(len, seeds), default=0))
        ]
        upper = [at(step, max(values)) for step, values in enumerate(by_update)]
        lower = [at(step, min(values)) for step, values in enumerate(by_update)]
        line = " ".join(at(step, fmean(values)) for step, values in enumerate(by_update))
        curves.append(Curve(arm, line, " ".join((*upper, *lower[::-1]))))
    marks = [10.0**one for one in range(-8, 5, 2)] if log else [0.0, 0.25, 0.5, 0.75, 1.0]
    ticks = [
        (f"{one:.0e}".replace("e-0", "e-").replace("e+0", "e") if log else f"{one:g}", height(one))
        for one in marks
    ]
    return Panel(title, x, y, ticks, updates, curves)


def _moving(values: Sequence[float]) -> list[float]:
    """Return the mean of the values around each place.

    >>> _moving([0.0, 3.0, 6.0, 3.0])
    [3.0, 3.0, 3.0, 4.0]
    """
    half = WINDOW // 2
    return [fmean(values[max(place - half, 0) : place + half + 1]) for place in range(len(values))]


def draw(path: Path, title: str, panels: Sequence[Panel], arms: Sequence[str]) -> None:
    """Write the panels, two in a row, and the names of the arms."""
    template = environment(Path(__file__).parent, keep_trailing_newline=True).get_template("curves.svg.jinja")
    text = template.render(
        title=title,
        panels=panels,
        arms=arms,
        width=2 * LEFT + 2 * WIDTH + GAP - 20,
        height=TOP + -(-len(panels) // 2) * (HEIGHT + 64) - 8,
        panel={"width": WIDTH, "height": HEIGHT},
    )
    path.write_text(text, "utf-8")
