"""The comparison as one HTML page, complete in itself; as a Markdown table; and as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.frameworks.answers import DIFFERENT, EQUAL, VERDICTS, Row
from benchmarks.templating import environment


def page(found: Sequence[Row], causes: Sequence[str], day: date) -> str:
    """Return the rows with a bar for each, and the causes, as HTML."""
    return _render("page.html.jinja", rows=found, causes=causes, day=day, verdicts=VERDICTS)


def picture(found: Sequence[Row]) -> str:
    """Return a bar for each row as SVG."""
    return _render("bars.svg.jinja", rows=found, verdicts=VERDICTS)


def markdown(found: Sequence[Row], causes: Sequence[str]) -> str:
    """Return Markdown: a table of frameworks, one of all rows, and the causes as a list."""
    lines: list[tuple[str, ...]] = [("framework", "way", "turns", *VERDICTS, "renders", "ms")]
    for row in found:
        counts = (str(row.counts[verdict] or "") for verdict in VERDICTS)
        numbers = (f"{row.renders:.0f}", f"{row.milliseconds:.1f}")
        lines.append((row.framework, row.way, row.ending, *counts, *numbers))
    listed = "".join(f"- {cause.strip()}\n" for cause in causes)
    return f"{_table(summary(found))}\n{_table(lines)}\n{listed}"


def summary(found: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return a line for each framework: how many next prompts are equal and different, each way."""
    headings = ("framework", "turns", "equal", "different", "equal with tito", "different with tito")
    lines: list[tuple[str, ...]] = [headings]
    for name in dict.fromkeys(row.framework for row in found):
        counts: dict[str, Counter[str]] = {}
        for row in found:
            if row.framework == name:
                counts.setdefault(row.way, Counter()).update(row.counts)
        numbers = [way[verdict] for way in counts.values() for verdict in (EQUAL, DIFFERENT)]
        lines.append((name, *map(str, (sum(next(iter(counts.values())).values()), *numbers))))
    return lines


def _table(lines: Sequence[Sequence[str]]) -> str:
    marked = [lines[0], ("---",) * len(lines[0]), *lines[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in marked)


def _render(name: str, **values: Any) -> str:
    return environment(Path(__file__).parent).get_template(name).render(values)
