"""The comparison as one HTML page, complete in itself; as a Markdown table; and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import tito_io
from benchmarks.frameworks.answers import VERDICTS, Row


def page(found: Sequence[Row], causes: Sequence[str], day: date) -> str:
    """Return the rows with a bar for each, and the causes, as HTML."""
    return _render("page.html.jinja", rows=found, causes=causes, day=day, verdicts=VERDICTS)


def picture(found: Sequence[Row]) -> str:
    """Return a bar for each row as SVG."""
    return _render("bars.svg.jinja", rows=found, verdicts=VERDICTS)


def markdown(found: Sequence[Row], causes: Sequence[str]) -> str:
    """Return the rows as a Markdown table, and the causes as a list."""
    headings = ("framework", "way", "turns", *VERDICTS, "renders", "ms")
    lines = [headings, ("---",) * len(headings)]
    for row in found:
        counts = (str(row.counts[verdict] or "") for verdict in VERDICTS)
        numbers = (f"{row.renders:.0f}", f"{row.milliseconds:.1f}")
        lines.append((row.framework, row.way, row.ending, *counts, *numbers))
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{table}\n" + "".join(f"- {cause.strip()}\n" for cause in causes)


def _render(name: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader([Path(__file__).parent, Path(tito_io.__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(values)
