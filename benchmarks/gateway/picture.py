"""Draw what a turn costs over the turns of a conversation, as SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.chart import check
from benchmarks.gateway.turns import Conversation, median
from tito_io.atomic_write import replaced

__all__ = ["check", "draw"]
PARTS = 40


def draw(conversations: Sequence[Conversation], path: Path) -> None:
    """Write a file of curves, a panel for each conversation."""
    figures = import_module("matplotlib.figure")
    figure = figures.Figure(figsize=(6 * len(conversations), 4.5), layout="constrained")
    panels = figure.subplots(1, len(conversations), squeeze=False)[0]
    for panel, conversation in zip(panels, conversations, strict=True):
        _panel(panel, conversation)
    with replaced(path) as (file, _):
        figure.savefig(file, dpi=150, format=path.suffix[1:])


def _panel(axes: Any, conversation: Conversation) -> None:
    parts = list(conversation.parts(PARTS))
    firsts = [first for first, _ in parts]
    axes.plot(firsts, [median(costs, lambda cost: cost.gateway) for _, costs in parts], label="gateway")
    axes.plot(firsts, [median(costs, lambda cost: cost.added) for _, costs in parts], label="added")
    axes.plot(
        firsts, [median(costs, lambda cost: cost.proxy) for _, costs in parts], "--", label="a proxy of bytes"
    )
    axes.set_title("streamed" if conversation.stream else "whole")
    axes.set_xlabel("turn")
    axes.set_ylabel("ms of processor time")
    axes.set_ylim(bottom=0)
    axes.legend()
