"""An audit as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tito_core.breaks import Break, Cause, Piece
from tito_core.tally import Tally

from .figures import FAMILY, figures
from .report import Report
from .words import count, plain, seen

COLOURS = {
    Cause.RETOKENIZED: "cyan",
    Cause.THINKING: "magenta",
    Cause.WHITESPACE: "blue",
    Cause.TRUNCATED: "yellow",
    Cause.SEAM: "yellow",
}
TOKENS = 10
"""Tokens of a side that a line has room for."""


def table(report: Report) -> Group:
    """Return causes, rates and the chosen breaks."""
    tally = report.tally
    parts: list[Table | Text] = [verdict(report)]
    if tally.breaks:
        parts += [_causes(tally), _breaks(report.choice.shown, tally)]
    return Group(*parts, rates(report))


def verdict(report: Report) -> Text:
    """Return the first line."""
    tally = report.tally
    over = f"{count(tally.conversations, 'conversation')}, {count(tally.compared, 'prompt')} compared"
    if tally.breaks:
        return Text(f"{count(tally.breaks, 'break')} in {over}", style="bold red")
    style = "bold green" if report.whole else "bold yellow"
    return Text(f"no drift in {over}", style=style)


def _causes(tally: Tally) -> Table:
    made = Table(box=SIMPLE_HEAD, pad_edge=False, title="Causes", title_justify="left")
    for heading in ("breaks", "cause", "also", ""):
        made.add_column(heading, justify="left" if heading in ("cause", "") else "right")
    for cause in Cause:
        if cause.name in tally.causes or cause.name in tally.also:
            also = tally.also.get(cause.name, 0)
            name = Text(cause.name.lower(), style=COLOURS.get(cause, "red"))
            made.add_row(
                f"{tally.causes.get(cause.name, 0):,}", name, f"{also:,}" if also else "", cause.value
            )
    return made


def _breaks(shown: Sequence[Break], tally: Tally) -> Table:
    title = f"{len(shown)} of {count(tally.breaks, 'break')}: the first of each cause, in turns"
    made = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", show_lines=False)
    for heading in ("conversation", "turn", "at", "cause", "used", "rendered from messages"):
        made.add_column(heading, justify="right" if heading == "at" else "left", overflow="fold")
    for one in shown:
        cause = Text(one.cause.name.lower(), style=COLOURS.get(one.cause, "red"))
        cause.append("".join(f"\n+{also.name.lower()}" for also in one.also), style="dim")
        where = plain(f"{one.turn} {one.part.name.lower()}")
        sides = _side(one.used, one.used_ids, "green"), _side(one.rendered, one.rendered_ids, "red")
        made.add_row(Text(plain(one.conversation)), Text(where), f"{one.at:,}", cause, *sides)
    return made


def _side(pieces: Sequence[Piece], size: int, colour: str) -> Text:
    """Return the first tokens, every other one underlined so that the borders show."""
    if not pieces:
        return Text("nothing", style="dim italic")
    made = Text()
    for place, piece in enumerate(pieces[:TOKENS]):
        made.append(seen(piece.text), style=f"{colour} underline" if place % 2 else colour)
    more = size - min(len(pieces), TOKENS)
    return made.append(f" +{more:,}", style="dim") if more else made


def rates(report: Report) -> Text:
    """Return the closing lines."""
    tally = report.tally
    lines = [f"{one.name:<20}{one.percent:>7}  ({one.counted})" for one in figures(tally)]
    if tally.happened:
        lines.append(f"{count(tally.happened, 'break')} really happened: those prompts went by messages")
    if Cause.RENDERING.name in tally.causes:
        lines.append(f"rendering: {FAMILY}")
    lines += _missing(report)
    return Text("\n".join(lines))


def _missing(report: Report) -> list[str]:
    """Name what was not compared."""
    tally = report.tally
    lines = [f"not audited: {plain(str(one))}" for one in report.first]
    hidden = report.problems - len(report.first)
    lines += [f"not audited: {hidden:,} more"] if hidden else []
    kinds = (
        (tally.refused, "that the template refuses"),
        (tally.media, "with media"),
        (tally.wordless, "without messages"),
    )
    return lines + [f"not compared: {count(number, 'prompt')} {what}" for number, what in kinds if number]
