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
from .grid import LEGEND, Cell, State, grid
from .report import Divergence, DrawnSeam, Finding, LintReport, Look, Token

STYLES = {
    State.EXACT: "green",
    State.REWRITTEN: "yellow",
    State.REFUSED: "red",
    State.REJECTED: "dim",
}
PARTS = {"text": "dim italic", "generation prompt": "blue", "opener": "magenta", "close": "cyan"}
WIDTH = 7
"""Columns of a cell, as wide as a state; longer cells are wrapped, because cut ones would look alike."""
SHOWN = 6
"""How many kinds of divergence are shown; the JSON and the page have all of them."""


def show(report: LintReport, console: Console) -> None:
    """Print a report."""
    for piece in _pieces(report):
        console.print(piece)


def _pieces(report: LintReport) -> Iterator[RenderableType]:
    yield Text(f"{visible(report.path)}  {report.template}", style="bold")
    close = visible("".join(token.text for token in report.suffix)) or "the opener of the next message"
    stops = ", ".join(f"{token.id} {visible(token.text)}" for token, _ in report.stops) or "unknown"
    yield _indented(Text(f"a turn is closed with {close}   stop ids: {stops}"))
    for note in report.notes:
        yield _indented(Text(f"note: {note}"))
    for seam in report.looks[0].seams:
        yield _indented(_seam(seam))
    for look in report.looks:
        yield _indented(_table(look), above=1)
    groups = drifts(report.findings)
    for change, findings in list(groups.items())[:SHOWN]:
        yield _indented(_drift(change, findings), above=1)
    if len(groups) > SHOWN:
        more = len(groups) - SHOWN
        yield _indented(Text(f"... {more} more kinds of divergence: see --json or --html"), above=1, below=1)
    advice = [Text(f"* {one}") for one in report.advice] or [Text("* Nothing to note.")]
    yield _indented(Text("\n").join(advice), above=1, below=1)


def _indented(piece: RenderableType, *, above: int = 0, below: int = 0) -> Padding:
    return Padding(piece, (above, 2, below, 2), expand=False)


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
        table.add_row(row.title, *map(_cell, row.cells))
    return table


def _cell(cell: Cell) -> Text:
    return Text(cell.text, style="" if cell.state is None else STYLES[cell.state])


def _drift(change: str, findings: Sequence[Finding]) -> Text:
    """Return a divergence: the cases, and the tokens of both sides with the differing ones in colour."""
    text = Text(f"{several(findings)}: a fresh render {change}\n")
    where = findings[0].divergence
    if where is None:
        return text
    for name, side, size, style in (
        ("in use  ", where.used, where.gone, "red"),
        ("rendered", where.rendered, where.new, "green"),
    ):
        text.append(f"  {name} ", style="dim").append(f"... {_joined(where.before)}", style="dim")
        text.append(_joined(side[:size]), style=f"{style} reverse").append(_joined(side[size:]))
        text.append(f"   ({_first(where, side)})\n", style="dim")
    text.rstrip()
    return text


def _first(where: Divergence, side: Sequence[Token]) -> str:
    return f"at {where.at}: {side[0].id} {visible(side[0].text)}" if side else f"at {where.at}: nothing"


def _joined(tokens: Sequence[Token]) -> str:
    return visible("".join(token.text for token in tokens))


def legend() -> Text:
    """Return the meaning of the words in the tables."""
    lines = (
        Text(f"{state.value:>8} ", style=STYLES[state]).append(meaning, style="default")
        for state, meaning in LEGEND.items()
    )
    note = Text(
        "     4/8 four of eight such turns: after a user message or in a tool loop, with or without content"
    )
    return Text("\n").join([*lines, note])
