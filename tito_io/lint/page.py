"""Reports as one page to look at: nothing but HTML and CSS, and nothing that it fetches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from tito_io.cli.errors import visible

from .advice import drifts, refusals, several, situation
from .grid import LEGEND, State, counts, grid
from .report import LintReport

SYMBOLS = {State.EXACT: "✓", State.REWRITTEN: "≈", State.REFUSED: "✕", State.REJECTED: "–"}  # noqa: RUF001  # signs, no letters


def page(reports: Sequence[LintReport]) -> str:
    """Return the page."""
    return _template().render(
        reports=reports,
        total=counts(one for report in reports for one in report.findings),
        states=list(LEGEND),
        legend=LEGEND,
        failed=sum(report.error is not None for report in reports),
    )


def _coded(text: str) -> Markup:
    """Return a text whose words in backticks are code.

    >>> _coded("drops `<think>`")
    Markup('drops <code>&lt;think&gt;</code>')
    """
    pieces = (escape(piece) for piece in text.split("`"))
    made = (Markup("<code>{}</code>").format(piece) if i % 2 else piece for i, piece in enumerate(pieces))
    return Markup("").join(made)


@cache
def _template() -> Template:
    world: dict[str, Any] = {
        "counts": counts,
        "drifts": drifts,
        "grid": grid,
        "refusals": refusals,
        "several": several,
        "situation": situation,
        "state_of": State.of,
        "symbols": SYMBOLS,
    }
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= world
    environment.filters |= {"visible": visible, "coded": _coded}
    return environment.from_string(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
