"""Lint reports as one HTML page, complete in itself: no script, and no request to the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from tito_io.cli.errors import visible
from tito_io.pages import render

from .advice import drifts, several, situation
from .grid import LEGEND, SHARES, State, counts, grid
from .report import LintReport

SYMBOLS = {State.EXACT: "✓", State.REWRITTEN: "≈", State.REFUSED: "✕", State.REJECTED: "–"}  # noqa: RUF001  # signs, no letters


def page(reports: Sequence[LintReport]) -> str:
    """Return the page of some reports as HTML."""
    return render(
        "lint/page.html.jinja",
        reports=reports,
        total=counts(finding for report in reports for finding in report.findings),
        legend=LEGEND,
        shares=SHARES,
        symbols=SYMBOLS,
        failed=sum(report.error is not None for report in reports),
        counts=counts,
        drifts=drifts,
        grid=grid,
        several=several,
        situation=situation,
        state_of=State.of,
        visible=visible,
        short=lambda path: PurePath(path).name or path,
    )
