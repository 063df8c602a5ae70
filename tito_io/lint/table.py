"""Show a lint report in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tito_io.cli.errors import visible

from .advice import drifts, several
from .grid import LEGEND, SHARES, State, grid
from .report import DrawnSeam, Finding, LintReport, Look, Token

STYLES = {State.EXACT: "green", State.REWRITTEN: "default", State.REFUSED: "red", State.REJECTED: "dim"}
PARTS = {"text": "dim italic", "generation prompt": "blue", "opener": "magenta", "close": "cyan"}
WIDTH = 7
"""Columns of a cell, as wide as a state; longer cells are wrapped, because cut ones would look alike."""
SHOWN = 6
"""How many kinds of divergence are shown; the JSON and the page have all of them."""


def show(report: LintReport, console: Console) -> None:
    """Print a report."""
    console.print(Text(f"{visible(report.path)}  {report.template}", style="bold"))
    for piece, above, below in _pieces(report):
        console.print(Padding(piece, (above, 2, below, 2), expand=False))


def _pieces(report: LintReport) -> Iterator[tuple[RenderableType, int, int]]:
    """Yield what is indented below the title, with the empty lines above and below it."""
    close = visible(_joined(report.suffix)) or "the opener of the next message"
    stops = ", ".join(f"{token.id} {visible(token.text)}" for token, _ in report.stops) or "unknown"
    yield Text(f"a turn is closed with {close}   stop ids: {stops}"), 0, 0
    yield from ((Text(f"note: {note}"), 0, 0) for note in report.notes)
    yield from ((_seam(seam), 0, 0) for seam in report.looks[0].seams)
    yield from ((_table(look), 1, 0) for look in report.looks)
    if report.media is not None:
        yield Text("\n  ".join(report.media.lines)), 0, 0
    groups = list(drifts(report.findings).items())
    yield from ((_drift(change, findings), 1, 0) for change, findings in groups[:SHOWN])
    if len(groups) > SHOWN:
        more = len(groups) - SHOWN
        yield Text(f"... {more} more kinds of divergence: see --json or --html"), 1, 1
    advice = [Text(f"* {one}") for one in report.advice] or [Text("* Nothing to note.")]
    yield Text("\n").join(advice), 1, 1


def _seam(seam: DrawnSeam) -> Text:
    """Return what is written after a turn, in pieces."""
    text = Text(f"{seam.role:>6} after a turn: ", style="dim").append("sampled", style="bold")
    for part in seam.parts:
        piece = "...text..." if part.name == "text" else _joined(part.tokens)
        text.append(" | ", style="dim").append(piece, style=PARTS.get(part.name, ""))
    return text


def _table(look: Look) -> Table:
    cells = grid(look)
    table = Table(title=look.rendering.label, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.title_justify = "left"
    table.add_column("what follows")
    for name in cells.columns:
        table.add_column(f"after {name}" if name == cells.columns[0] else name, min_width=WIDTH)
    for row in cells.rows:
        styles = ["" if cell.state is None else STYLES[cell.state] for cell in row.cells]
        table.add_row(
            row.title, *(Text(cell.text, style) for cell, style in zip(row.cells, styles, strict=True))
        )
    return table


def _drift(change: str, findings: Sequence[Finding]) -> Text:
    """Return a divergence: the cases, and the tokens of both sides with the differing ones in colour."""
    text = Text(f"{several(findings)}: a fresh render {change}\n")
    where = findings[0].divergence
    if where is None:
        return text
    used, rendered = ("in use  ", where.used, where.gone), ("rendered", where.rendered, where.new)
    for (name, side, size), style in ((used, "red reverse"), (rendered, "green reverse")):
        text.append(f"  {name} ", style="dim").append(f"... {_joined(where.before)}", style="dim")
        text.append(_joined(side[:size]), style=style).append(_joined(side[size:]))
        first = f"{side[0].id} {visible(side[0].text)}" if side else "nothing"
        text.append(f"   (at {where.at}: {first})\n", style="dim")
    text.rstrip()
    return text


def _joined(tokens: Sequence[Token]) -> str:
    return visible("".join(token.text for token in tokens))


def legend() -> Text:
    """Return the meaning of the words in the tables."""
    lines = [
        Text(f"{state.value:>8} ", STYLES[state]).append(text, "default") for state, text in LEGEND.items()
    ]
    note = f"  2 of 4 {SHARES}"
    return Text("\n").join([*lines, Text(note)])
