"""Sum up what was judged: verdicts, reasons and the templates that show them; as tables and as JSON data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.templates.verdict import (
    DROPPED,
    EXACT,
    REFUSED,
    UNCLEAR,
    UNCLOSED,
    UNRENDERED,
    WAYS,
    WRONG,
    Answer,
    Cell,
    Judged,
    Rendered,
)

VERDICTS = (EXACT, REFUSED, UNCLOSED, DROPPED, UNCLEAR, WRONG)
LETTERS = {EXACT: "=", REFUSED: "r", UNCLOSED: "n", DROPPED: "d", UNCLEAR: "u", WRONG: "X", UNRENDERED: "."}
JUDGED = (EXACT, REFUSED, UNCLOSED, WRONG)
"""Verdicts that count in the ratio of exact answers: the template itself writes the whole conversation."""
NUMBERS = re.compile(r"line \d+|\(\d+,\)|\b\d{2,}\b|call_id \S+")


def cells(found: Sequence[Judged]) -> Iterator[tuple[Judged, Rendered, Cell]]:
    """Yield every cell with its template and rendering."""
    for template in found:
        for rendering in template.renderings:
            for cell in rendering.cells:
                yield template, rendering, cell


def answers(found: Sequence[Judged]) -> Iterator[tuple[Judged, Rendered, Cell, Answer]]:
    """Yield every answer with its cell."""
    for template, rendering, cell in cells(found):
        for one in cell.answers:
            yield template, rendering, cell, one


def counts(found: Sequence[Judged]) -> Counter[tuple[str, str]]:
    """Return how many answers of each way have each verdict."""
    return Counter((one.way, one.verdict) for _, _, _, one in answers(found))


def share(counted: Counter[tuple[str, str]], way: str) -> float:
    """Return the share of exact answers among those of which the template writes the whole conversation."""
    judged = sum(counted[way, verdict] for verdict in JUDGED)
    return counted[way, EXACT] / judged if judged else 1.0


def wrong(found: Sequence[Judged]) -> list[tuple[Judged, Rendered, Cell, Answer]]:
    """Return the wrong answers."""
    return [row for row in answers(found) if row[3].verdict == WRONG]


@attrs.frozen
class Why:
    """A reason, and where it was given.

    Attributes:
        verdict: The verdict.
        reason: The reason, without numbers.
        counts: How many cells have it, by way of asking; under "" for a reason of the template or the oracle.
        templates: The templates, those with the most answers first.
    """

    verdict: str
    reason: str
    counts: dict[str, int]
    templates: tuple[str, ...]


def reasons(found: Sequence[Judged]) -> list[Why]:
    """Return the reasons for everything that is not exact, the most frequent first."""
    ways: dict[tuple[str, str], Counter[str]] = {}
    names: dict[tuple[str, str], Counter[str]] = {}
    for template, way, verdict, reason in _noted(found):
        key = verdict, general(reason, template.name)
        ways.setdefault(key, Counter())[way] += 1
        names.setdefault(key, Counter())[template.name] += 1
    rows = [
        Why(*key, dict(count), tuple(name for name, _ in names[key].most_common()))
        for key, count in ways.items()
    ]
    return sorted(rows, key=lambda row: (row.verdict, -max(row.counts.values()), row.reason))


def _noted(found: Sequence[Judged]) -> Iterator[tuple[Judged, str, str, str]]:
    """Yield template, way, verdict and reason of everything that is not exact."""
    yield from ((template, "", "not loaded", template.error) for template in found if template.error)
    yield from (
        (template, "", cell.verdict, cell.reason) for template, _, cell in cells(found) if cell.verdict
    )
    for template, _, _, one in answers(found):
        if one.verdict != EXACT:
            yield template, one.way, one.verdict, one.reason


def general(reason: str, name: str) -> str:
    """Return a reason without numbers and names, so that templates share it.

    >>> general("a.jinja, line 12: ends with 1529, not (198,)", "a")
    '..., ...: ends with ..., not ...'
    """
    return NUMBERS.sub("...", reason.replace(f"{name}.jinja", "..."))


def show(found: Sequence[Judged], console: Console) -> None:
    """Print verdicts by way, then the reasons."""
    counted = counts(found)
    table = Table(title="Verdicts by way of asking", title_justify="left")
    for heading in ("", *VERDICTS, "exact of rendered"):
        table.add_column(heading, justify="right" if heading else "left")
    for way in WAYS:
        numbers = [f"{counted[way, verdict]:,}" for verdict in VERDICTS]
        table.add_row(way, *numbers, f"{share(counted, way):.2%}")
    console.print(table)
    _show_reasons(reasons(found), console)
    for template, rendering, cell, one in wrong(found):
        place = f"{template.name}, {rendering.label}, {cell.shape}, {one.way}"
        console.print(f"[red]wrong[/] {escape(place)}: {escape(one.reason)}", soft_wrap=True)
    rendered = sum(not cell.verdict for _, _, cell in cells(found))
    number = sum(len(one.renderings) for one in found)
    seconds = sum(one.seconds for one in found)
    console.print(
        f"{len(found):,} templates, {number:,} renderings, {rendered:,} conversations rendered; "
        f"{seconds:,.0f} CPU-seconds"
    )


def _show_reasons(rows: Sequence[Why], console: Console) -> None:
    """Print how often each reason was given, by way of asking."""
    table = Table(title="Why not exact", title_justify="left")
    for heading in ("verdict", "template", *WAYS, "templates", "reason", "such as"):
        right = heading in {"template", "templates", *WAYS}
        table.add_column(heading, overflow="fold", justify="right" if right else "left")
    for row in rows:
        numbers = [f"{row.counts[way]:,}" if way in row.counts else "" for way in ("", *WAYS)]
        named = escape(", ".join(row.templates[:2]))
        table.add_row(row.verdict, *numbers, f"{len(row.templates):,}", escape(row.reason), named)
    console.print(table)


def data(found: Sequence[Judged]) -> dict[str, Any]:
    """Return everything as JSON data; a letter for each shape says the verdict (`letters` explains them)."""
    counted = counts(found)
    return {
        "letters": {letter: verdict for verdict, letter in LETTERS.items()},
        "shapes": [cell.shape for cell in found[0].renderings[0].cells]
        if found and found[0].renderings
        else [],
        "counts": {way: {verdict: counted[way, verdict] for verdict in VERDICTS} for way in WAYS},
        "reasons": [attrs.asdict(row) for row in reasons(found)],
        "templates": [_template_data(one) for one in found],
    }


def _template_data(template: Judged) -> dict[str, Any]:
    return {
        "name": template.name,
        "sha256": template.digest,
        "repositories": len(template.repositories),
        "seconds": round(template.seconds, 3),
        "error": template.error,
        "renderings": [_rendering_data(one) for one in template.renderings],
    }


def _rendering_data(rendering: Rendered) -> dict[str, Any]:
    return {
        "label": rendering.label,
        "stops": rendering.stops,
        "seams": dict(rendering.seams),
        "verdicts": {way: "".join(letter(cell, way) for cell in rendering.cells) for way in WAYS},
        "reasons": [
            {"shape": cell.shape, "way": one.way, "reason": one.reason}
            for cell in rendering.cells
            for one in (*([Answer("", cell.verdict, cell.reason)] if cell.verdict else []), *cell.answers)
            if one.verdict not in {EXACT, DROPPED}
        ],
        "changed": {cell.shape: list(cell.changed) for cell in rendering.cells if cell.changed},
    }


def letter(cell: Cell, way: str) -> str:
    """Return the letter of a verdict."""
    verdict = next((one.verdict for one in cell.answers if one.way == way), UNRENDERED)
    return LETTERS[verdict]
