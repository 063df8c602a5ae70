"""Curves by update, one for each arm, with bands over seeds, as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from pathlib import Path

import attrs

from benchmarks.templating import environment

from .results import Estimate, Result

WIDTH, HEIGHT, LEFT, TOP, GAP = 340, 210, 52, 62, 44
FLOOR = 1e-8
"""Where a logarithmic axis begins; smaller values are drawn here."""


@attrs.frozen
class Curve:
    """Points of one arm: lower end, mean and upper end by update, in pixels of the picture."""

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
    """Return the curves of a figure; a band is the 95 % interval of the mean over seeds."""
    x, y = LEFT + place % 2 * (WIDTH + GAP), TOP + place // 2 * (HEIGHT + 64)
    updates = max((one.updates[0]["of"] for runs in arms.values() for one in runs), default=1)
    top, low = (2.0, log10(FLOOR)) if log else (1.0, 0.0)

    def height(value: float) -> float:
        shown = log10(max(value, FLOOR)) if log else value
        return y + HEIGHT * (1 - (min(max(shown, low), top) - low) / (top - low))

    def at(update: int, value: float) -> str:
        return f"{x + WIDTH * update / max(updates - 1, 1):.1f},{height(value):.1f}"

    curves = []
    for arm, runs in arms.items():
        by_update = [
            [run.updates[step][name] for run in runs if step < len(run.updates)] for step in range(updates)
        ]
        means = [Estimate.of(values) for values in by_update if values]
        upper = [at(step, one.mean + (one.half or 0.0)) for step, one in enumerate(means)]
        lower = [at(step, max(one.mean - (one.half or 0.0), 0.0)) for step, one in enumerate(means)]
        line = " ".join(at(step, one.mean) for step, one in enumerate(means))
        curves.append(Curve(arm, line, " ".join((*upper, *lower[::-1]))))
    marks = [10.0**one for one in range(-8, 3, 2)] if log else [0.0, 0.25, 0.5, 0.75, 1.0]
    ticks = [
        (f"{one:.0e}".replace("e-0", "e-").replace("e+0", "e") if log else f"{one:g}", height(one))
        for one in marks
    ]
    return Panel(title, x, y, ticks, updates, curves)


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
