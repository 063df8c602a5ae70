"""Lint reports as one HTML page, complete in itself: no script, and no request to the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from tito_io.cli.errors import visible
from tito_io.pages import render

from .advice import drifts, several, situation
from .grid import LEGEND, SHARES, State, counts, grid
from .report import LintReport, Look

SYMBOLS = {State.EXACT: "✓", State.REWRITTEN: "≈", State.REFUSED: "✕", State.REJECTED: "–"}  # noqa: RUF001  # signs, no letters


WORDS = {True: "yes", False: "no", None: "unknown or none", (): "none"}
LONGEST = 120
"""Characters of a fact: about a line."""


def facts(look: Look) -> dict[str, str]:
    """Return a rendering's facts by name, each in a line."""
    found = {**look.facts, "opening": look.opening}
    return {name.replace("_", " "): _in_words(value) for name, value in found.items()}


def _in_words(value: Any) -> str:
    r"""Return the value of a fact.

    >>> _in_words(True), _in_words(("user", "tool")), _in_words("<s>\n")
    ('yes', 'user, tool', '<s>\\n')
    """
    text = WORDS[value] if value in WORDS else visible(value if isinstance(value, str) else ", ".join(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


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
        facts=facts,
        grid=grid,
        several=several,
        situation=situation,
        state_of=State.of,
        visible=visible,
        short=lambda path: PurePath(path).name or path,
    )
