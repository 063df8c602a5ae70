"""An audit as a page that needs nothing else: no network, no script, no file beside it."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files

import attrs
from jinja2 import Environment, StrictUndefined

from tito_core.drift.breaks import Break, BreakText, Cause

from .rates import FAMILY, count, figures, plain, seen
from .report import AuditReport


@attrs.frozen(kw_only=True)
class Heading:
    """What the page is about."""

    file: str
    family: str
    block: int
    made: datetime
    """When; the caller knows the time."""


def page(report: AuditReport, heading: Heading) -> str:
    """Return the page as HTML."""
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"seen": seen, "plain": plain, "number": "{:,}".format}
    text = files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    shown = report.choice.shown
    return made.from_string(text).render(
        heading=heading,
        report=report,
        tally=report.tally,
        figures=figures(report.tally),
        causes=_causes(report),
        shown=shown,
        family=FAMILY if Cause.RENDERING.name in report.tally.causes else "",
        most_cached=max(report.tally.cached_by_ids, report.tally.cached_by_messages),
        filters=[cause for cause in Cause if any(one.cause is cause for one in shown)],
        style=style,
        more=_more,
        count=count,
    )


def _causes(report: AuditReport) -> list[tuple[Cause, int, int, float]]:
    """Return the causes that occur: breaks, breaks that have it beside another cause, and a bar's width."""
    tally = report.tally
    most = max(tally.causes.values(), default=1)
    return [
        (cause, tally.causes.get(cause.name, 0), tally.also.get(cause.name, 0), number / most * 100)
        for cause in Cause
        if (number := tally.causes.get(cause.name, 0)) or cause.name in tally.also
    ]


def _more(one: Break, pieces: tuple[BreakText, ...]) -> int:
    """Return how many tokens of a side the page does not show."""
    return (one.used_ids if pieces is one.used else one.rendered_ids) - len(pieces)
