"""An audit report as one HTML page, complete in itself: no script, and no request to the network."""

from __future__ import annotations

from datetime import datetime

import attrs

from tito_core.drift.breaks import Break, BreakText, Cause
from tito_io.pages import render
from tito_io.samples.progress import counted as count

from .rates import FAMILY, figures, label, left_out, plain, seen
from .report import AuditReport


@attrs.frozen(kw_only=True)
class Heading:
    """The heading of the page.

    Attributes:
        file: The name of the audited file.
        family: The model folder whose template rendered the prompts.
        block: How many ids a block of the prefix cache holds.
        created: When the page was written.
    """

    file: str
    family: str
    block: int
    created: datetime


def page(report: AuditReport, heading: Heading) -> str:
    """Return the page as HTML."""
    shown = report.shown
    return render(
        "audit/page.html.jinja",
        heading=heading,
        report=report,
        tally=report.tally,
        figures=figures(report.tally),
        causes=_causes(report),
        shown=shown,
        family=FAMILY if Cause.RENDERING.name in report.tally.causes else "",
        most_cached=max(report.tally.cached_ids, report.tally.cached_ids_by_messages),
        filters=[cause for cause in Cause if any(item.cause is cause for item in shown)],
        more=_more,
        count=count,
        plain=plain,
        seen=seen,
        label=label,
    )


def _causes(report: AuditReport) -> list[tuple[Cause, int, int, float]]:
    """Return each cause that occurs: its breaks, those beside another cause, and the width of its bar."""
    tally = report.tally
    most = max(tally.causes.values(), default=1)
    return [
        (cause, tally.causes.get(cause.name, 0), tally.also.get(cause.name, 0), number / most * 100)
        for cause in Cause
        if (number := tally.causes.get(cause.name, 0)) or cause.name in tally.also
    ]


def _more(item: Break, pieces: tuple[BreakText, ...]) -> int:
    """Return how many tokens of one side of a break the page leaves out."""
    return left_out(pieces, item.used_ids if pieces is item.used else item.rendered_ids)
