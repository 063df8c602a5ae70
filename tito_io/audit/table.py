"""Show an audit report in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tito_core.drift.breaks import Break, BreakText, Cause
from tito_core.drift.tally import Tally
from tito_io.samples.progress import counted as count

from .rates import FAMILY, UNSEEN, figures, label, left_out, plain
from .report import AuditReport

COLOURS = {
    Cause.MEDIA: "bright_magenta",
    Cause.RETOKENIZED: "cyan",
    Cause.THINKING: "magenta",
    Cause.WHITESPACE: "blue",
    Cause.TRUNCATED: "yellow",
    Cause.SEAM: "yellow",
}
TOKENS = 24
"""The most tokens of one side of a break that are shown."""


def table(report: AuditReport) -> Group:
    """Return the verdict, the causes, the selected breaks and the rates."""
    tally = report.tally
    parts: list[RenderableType] = [verdict(report)]
    shown = report.shown
    if tally.breaks and not tally.foreign_conversations:
        parts.append(_causes(tally))
    if tally.breaks and shown:
        number = f"{len(shown)} of {count(tally.breaks, 'break')}"
        title = f"{number}: the first of {_causes_shown(report)}, in turns\n"
        parts += [Text(title, style="italic"), *chain.from_iterable(map(_break, shown)), Text()]
    return Group(*parts, rates(report))


def _causes_shown(report: AuditReport) -> str:
    shown, found = {one.cause for one in report.shown}, report.tally.causes
    return "each cause" if len(shown) == len(found) else f"{len(shown)} of {len(found)} causes"


def verdict(report: AuditReport) -> Text:
    """Return the first lines. What did not happen is neither good nor bad."""
    tally = report.tally
    if report.fails(hypothetical=False):
        return Text(report.headline, style="bold red")
    if tally.breaks and report.whole:
        return Text(report.headline, style="bold")
    return Text(report.headline, style="bold green" if report.whole else "bold yellow")


def _causes(tally: Tally) -> Table:
    causes = Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title="Causes", title_justify="left"
    )
    for heading in ("breaks", "also", "cause", ""):
        right = heading in ("breaks", "also")
        causes.add_column(heading, justify="right" if right else "left", no_wrap=bool(heading))
    for cause in Cause:
        if cause.name in tally.causes or cause.name in tally.also:
            also = tally.also.get(cause.name, 0)
            name = Text(cause.name.lower(), style=COLOURS.get(cause, "red"))
            number = f"{tally.causes.get(cause.name, 0):,}"
            causes.add_row(number, f"{also:,}" if also else "", name, cause.value)
    return causes


def _break(one: Break) -> Iterable[RenderableType]:
    """Yield a break as lines: its cause and place, what differs in an image, and its two sides."""
    cause = Text(one.cause.name.lower(), style=COLOURS.get(one.cause, "red"))
    cause.append("".join(f" +{also.name.lower()}" for also in one.also), style="dim")
    place = f"{plain(one.conversation)}, {plain(one.turn)} {one.part.name.lower()}, at {one.at:,}"
    yield cause.append(f"  {place}", style="default")
    if one.cause is Cause.MEDIA:
        yield Text(f"{plain(one.detail)}", style="italic")
    for size, name, pieces, colour in (
        (one.used_ids, "used    ", one.used, "green"),
        (one.rendered_ids, "rendered", one.rendered, "red"),
    ):
        ids = f"{size:>8,} {'id ' if size == 1 else 'ids'} {name} "
        line = Text(no_wrap=True, overflow="ellipsis").append(ids, style="dim")
        yield line.append_text(_side(pieces, size, colour))


def _side(pieces: Sequence[BreakText], size: int, colour: str) -> Text:
    """Return the first tokens; every other one is underlined, so that their borders show."""
    if not pieces:
        return Text("nothing", style="dim italic")
    side = Text()
    for place, piece in enumerate(pieces[:TOKENS]):
        side.append(label(piece), style=f"{colour} underline" if place % 2 else colour)
    return side.append("…" * bool(left_out(pieces[:TOKENS], size)), style="dim")


def rates(report: AuditReport) -> Text:
    """Return the closing lines: the rates, what they mean for this report, and what was not compared."""
    tally = report.tally
    lines = [f"{one.name:<22}{one.percent:>7}  ({one.counted})" for one in figures(tally)]
    if tally.ids_lost_to_merging and not tally.breaks:
        lines.append(f"ids lost to merging, although no prompt drifts: {UNSEEN}")
    if tally.foreign_conversations:
        lines.append("no rates: ids of two models differ everywhere")
    elif report.hypothetical:
        lines.append(f"hypothetical breaks: {report.hypothetical:,}, in prompts that were sent as ids")
    if report.engine:
        lines.append(f"rendered as {report.engine} renders")
    if Cause.RENDERING.name in tally.causes:
        lines.append(f"rendering: {FAMILY}")
    lines += [f"not audited: {plain(str(one))}" for one in report.first]
    lines += [f"not audited: {report.hidden:,} more"] if report.hidden else []
    reasons = (
        (tally.refused_prompts, f"that {plain(report.refuser)}"),
        (tally.prompts_with_media, "with images or other media whose place in the ids is unknown"),
        (tally.prompts_without_messages, "without messages"),
    )
    lines += [f"not compared: {count(number, 'prompt')} {reason}" for number, reason in reasons if number]
    return Text("\n".join(lines))
