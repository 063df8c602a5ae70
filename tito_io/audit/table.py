"""An audit as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tito_core.drift.breaks import Break, BreakText, Cause
from tito_core.drift.tally import Tally

from .rates import FAMILY, UNSEEN, count, figures, plain, seen
from .report import AuditReport

COLOURS = {
    Cause.RETOKENIZED: "cyan",
    Cause.THINKING: "magenta",
    Cause.WHITESPACE: "blue",
    Cause.TRUNCATED: "yellow",
    Cause.SEAM: "yellow",
}
TOKENS = 24
"""Tokens of a side that a line has room for."""


def table(report: AuditReport) -> Group:
    """Return causes, rates and the chosen breaks."""
    tally = report.tally
    parts: list[RenderableType] = [verdict(report)]
    if tally.breaks:
        parts += [_causes(tally), *_breaks(report.choice.shown, tally)]
    return Group(*parts, rates(report))


def verdict(report: AuditReport) -> Text:
    """Return the first line."""
    tally = report.tally
    if not tally.compared:
        held = f"{count(tally.conversations, 'conversation')} with {count(tally.calls, 'call')}"
        return Text(f"nothing could be compared: {held}, and no prompt to render", style="bold yellow")
    over = f"{count(tally.conversations, 'conversation')}, {count(tally.compared, 'prompt')} compared"
    if tally.breaks:
        return Text(f"{count(tally.breaks, 'break')} in {over}", style="bold red")
    style = "bold green" if report.whole else "bold yellow"
    return Text(f"no drift in {over}", style=style)


def _causes(tally: Tally) -> Table:
    made = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title="Causes", title_justify="left")
    for heading in ("breaks", "also", "cause", ""):
        right = heading in ("breaks", "also")
        made.add_column(heading, justify="right" if right else "left", no_wrap=bool(heading))
    for cause in Cause:
        if cause.name in tally.causes or cause.name in tally.also:
            also = tally.also.get(cause.name, 0)
            name = Text(cause.name.lower(), style=COLOURS.get(cause, "red"))
            number = f"{tally.causes.get(cause.name, 0):,}"
            made.add_row(number, f"{also:,}" if also else "", name, cause.value)
    return made


def _breaks(shown: Sequence[Break], tally: Tally) -> list[RenderableType]:
    """Return each break as three lines: what and where, and its two sides."""
    if not shown:
        return []
    title = f"{len(shown)} of {count(tally.breaks, 'break')}: the first of each cause, in turns\n"
    return [Text(title, style="italic"), *(line for one in shown for line in _break(one)), Text()]


def _break(one: Break) -> Iterable[RenderableType]:
    what = Text(one.cause.name.lower(), style=COLOURS.get(one.cause, "red"))
    what.append("".join(f" +{also.name.lower()}" for also in one.also), style="dim")
    where = f"{plain(one.conversation)}, {plain(one.turn)} {one.part.name.lower()}, at {one.at:,}"
    yield what.append(f"  {where}", style="default")
    yield _line(one.used_ids, "used    ", _side(one.used, one.used_ids, "green"))
    yield _line(one.rendered_ids, "rendered", _side(one.rendered, one.rendered_ids, "red"))


def _line(size: int, name: str, side: Text) -> Text:
    """Return a side on one line, cut where the terminal ends."""
    made = Text(no_wrap=True, overflow="ellipsis").append(f"{size:>8,} {name} ", style="dim")
    return made.append_text(side)


def _side(pieces: Sequence[BreakText], size: int, colour: str) -> Text:
    """Return the first tokens, every other one underlined so that the borders show."""
    if not pieces:
        return Text("nothing", style="dim italic")
    made = Text()
    for place, piece in enumerate(pieces[:TOKENS]):
        made.append(seen(piece.text), style=f"{colour} underline" if place % 2 else colour)
    return made.append("…" * (size > min(len(pieces), TOKENS)), style="dim")


def rates(report: AuditReport) -> Text:
    """Return the closing lines."""
    tally = report.tally
    lines = [f"{one.name:<20}{one.percent:>7}  ({one.counted})" for one in figures(tally)]
    if tally.lost_ids and not tally.breaks:
        lines.append(f"lost to merging, though no prompt drifts: {UNSEEN}")
    if tally.happened:
        lines.append(f"{count(tally.happened, 'break')} really happened: those prompts went by messages")
    if Cause.RENDERING.name in tally.causes:
        lines.append(f"rendering: {FAMILY}")
    lines += _missing(report)
    return Text("\n".join(lines))


def _missing(report: AuditReport) -> list[str]:
    """Name what was not compared."""
    tally = report.tally
    lines = [f"not audited: {plain(str(one))}" for one in report.first]
    lines += [f"not audited: {report.hidden:,} more"] if report.hidden else []
    kinds = (
        (tally.refused, "that the template refuses"),
        (tally.media, "with media"),
        (tally.wordless, "without messages"),
    )
    return lines + [f"not compared: {count(number, 'prompt')} {what}" for number, what in kinds if number]
