"""Draw growth curves (time over turns) as SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.measure import LINEAR, Point
from benchmarks.programs import FLOOR
from tito_io.atomic_write import replaced


def check(path: Path) -> None:
    """Raise `SystemExit` if no curves can be drawn, before anything is measured."""
    if path.suffix not in {".svg", ".png"}:
        raise SystemExit(f"--plot {path}: the file name must end in .svg or .png")
    try:
        import_module("matplotlib.figure")
    except ModuleNotFoundError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib, or the group `bench`") from None


def draw(points: Sequence[Point], path: Path) -> None:
    """Write a file of log-log curves, a panel for each number of tokens a message."""
    figures = import_module("matplotlib.figure")
    points = [point for point in points if point.case == LINEAR]
    sizes = sorted({point.tokens for point in points})
    figure = figures.Figure(figsize=(7 * len(sizes) + 3, 6), layout="constrained")
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for panel, tokens in zip(panels, sizes, strict=True):
        _panel(panel, [point for point in points if point.tokens == tokens], tokens)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    with replaced(path) as (file, _):
        figure.savefig(file, dpi=150, format=path.suffix[1:])


def _panel(axes: Any, points: Sequence[Point], tokens: int) -> None:
    """Draw the median of each program, with the quartiles around it. The floor is dashed."""
    for name in {point.program: None for point in points}:
        chosen = [point for point in points if point.program == name and point.timing is not None]
        timings = [point.timing for point in chosen if point.timing is not None]
        sizes = [point.turns for point in chosen]
        drawn = {"marker": ".", "linestyle": "-" if name.startswith("tito") else ":"}
        style = {"color": "black", "linestyle": "--"} if name == FLOOR else drawn
        (line,) = axes.plot(sizes, [one.warm * 1e3 for one in timings], label=name, **style)
        low, high = [one.low * 1e3 for one in timings], [one.high * 1e3 for one in timings]
        axes.fill_between(sizes, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(
        xscale="log", yscale="log", xlabel="turns in the history", ylabel="ms a turn, median and quartiles"
    )
    axes.set_title(f"{tokens:,} tokens a message")
    axes.grid(visible=True, which="both", alpha=0.2)
