"""A report as a person reads it in a terminal."""

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
from .report import Divergence, Drawn, Finding, LintReport, Look, Token

STYLES = {
    State.EXACT: "green",
    State.REWRITTEN: "yellow",
    State.REFUSED: "red",
    State.REJECTED: "dim",
}
PARTS = {"text": "dim italic", "generation prompt": "blue", "opener": "magenta", "close": "cyan"}
WIDTH = 7
"""As wide as a verdict; longer ones fold, since cut ones would look alike."""
SHOWN = 6
"""How many kinds of divergence are shown in context; the rest is in the JSON and on the page."""


def show(report: LintReport, console: Console) -> None:
    """Print a report."""
    for piece in _pieces(report):
        console.print(piece)


def _pieces(report: LintReport) -> Iterator[RenderableType]:
    yield Text(f"{visible(report.path)}  {report.template}", style="bold")
    yield Padding(_ends(report), (0, 2), expand=False)
    for note in report.notes:
        yield Padding(Text(f"note: {note}"), (0, 2), expand=False)
    for drawn in report.looks[0].seams:
        yield Padding(_seam(drawn), (0, 2), expand=False)
    for look in report.looks:
        yield Padding(_table(look), (1, 2, 0, 2), expand=False)
    groups = drifts(report.findings)
    for told, found in list(groups.items())[:SHOWN]:
        yield Padding(_drift(told, found), (1, 2, 0, 2), expand=False)
    if len(groups) > SHOWN:
        yield Padding(
            Text(f"... {len(groups) - SHOWN} more kinds of divergence: see --json or --html"), (1, 2)
        )
    yield Padding(_advice(report.advice), (1, 2, 1, 2), expand=False)


def _ends(report: LintReport) -> Text:
    suffix = "".join(token.text for token in report.suffix)
    stops = ", ".join(f"{token.id} {visible(token.text)}" for token, _ in report.stops) or "unknown"
    close = visible(suffix) if suffix else "nothing but the next opener"
    return Text(f"a turn is closed with {close}   stop ids: {stops}")


def _seam(drawn: Drawn) -> Text:
    """Return what is written after a turn, its pieces apart."""
    text = Text(f"{drawn.role:>6} after a turn: ", style="dim").append("sampled", style="bold")
    for part in drawn.parts:
        said = "...text..." if part.name == "text" else visible("".join(token.text for token in part.tokens))
        text.append(" | ", style="dim").append(said, style=PARTS.get(part.name, ""))
    return text


def _table(look: Look) -> Table:
    made = grid(look)
    table = Table(title=look.rendering.label, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.title_justify = "left"
    table.add_column("what follows")
    for name in made.columns:
        table.add_column(f"after {name}" if name == made.columns[0] else name, min_width=WIDTH)
    for row in made.rows:
        table.add_row(row.title, *map(_cell, row.cells))
    return table


def _cell(cell: Cell) -> Text:
    return Text(cell.text, style="" if cell.state is None else STYLES[cell.state])


def _drift(told: str, found: Sequence[Finding]) -> Text:
    where = found[0].divergence
    text = Text(f"{several(found)}: a fresh render {told}\n")
    return text if where is None else _sides(text, where)


def _sides(text: Text, where: Divergence) -> Text:
    """Add the tokens on both sides, those that differ in colour, and the ids that differ first."""
    before = _joined(where.before)
    for name, side, size, style in (
        ("in use  ", where.used, where.gone, "red"),
        ("rendered", where.rendered, where.new, "green"),
    ):
        text.append(f"  {name} ", style="dim").append(f"... {before}", style="dim")
        text.append(_joined(side[:size]), style=f"{style} reverse").append(_joined(side[size:]))
        text.append(f"   ({_at(where, side)})\n", style="dim")
    text.rstrip()
    return text


def _at(where: Divergence, side: Sequence[Token]) -> str:
    return f"at {where.at}: {side[0].id} {visible(side[0].text)}" if side else f"at {where.at}: nothing"


def _joined(tokens: Sequence[Token]) -> str:
    return visible("".join(token.text for token in tokens))


def _advice(said: Sequence[str]) -> Text:
    return Text("\n").join(Text(f"* {one}") for one in said) if said else Text("* Nothing to mind.")


def legend() -> Text:
    """Return what the words in the tables mean."""
    lines = (
        Text(f"{state.value:>8} ", style=STYLES[state]).append(told, style="default")
        for state, told in LEGEND.items()
    )
    note = Text(
        "     4/8 four of eight such turns: straight after a user or in a tool loop, with or without content"
    )
    return Text("\n").join([*lines, note])
