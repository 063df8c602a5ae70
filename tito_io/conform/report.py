"""Report a program's answers to the vectors: as a table, as JSON, and as a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
from rich.table import Table
from rich.text import Text

from tito_io.pages import render

from .judge import Judged, Verdict, counted
from .scenario import VERSION

FINE = (Verdict.EXACT, Verdict.REFUSED)
STYLES = {
    Verdict.EXACT: "green",
    Verdict.REFUSED: "green",
    Verdict.OVER_REFUSED: "yellow",
    Verdict.NOT_OFFERED: "dim",
    Verdict.WRONG: "red",
    Verdict.ERROR: "magenta",
    Verdict.NOT_ASKED: "dim",
}


@attrs.frozen
class Report:
    """All verdicts on one program.

    Attributes:
        command: The program, as it was started.
        judged: The vectors with their verdicts.
    """

    command: str
    judged: Sequence[Judged]

    @property
    def heading(self) -> str:
        """The number of vectors, their version, and the program."""
        return f"{_vectors(len(self.judged))} of version {VERSION}: {self.command}"

    @property
    def failed(self) -> list[Judged]:
        """The vectors that are neither exact nor rightly refused."""
        return [one for one in self.judged if one.verdict not in FINE]

    @property
    def groups(self) -> list[list[Judged]]:
        """The failed vectors that were asked, by verdict and cause; the largest group first."""
        groups: dict[tuple[Verdict, str], list[Judged]] = {}
        for one in self.failed:
            if one.verdict is not Verdict.NOT_ASKED:
                groups.setdefault((one.verdict, one.cause), []).append(one)
        return sorted(groups.values(), key=len, reverse=True)

    @property
    def not_asked(self) -> str:
        """How many vectors were not asked, and why; empty if all were."""
        missing = [one for one in self.judged if one.verdict is Verdict.NOT_ASKED]
        if not missing:
            return ""
        reason = missing[0].detail.partition(";")[0].removeprefix("not asked: ")
        return f"and {_vectors(len(missing))} {'was' if len(missing) == 1 else 'were'} not asked: {reason}"

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts to show; not asked only where that happened."""
        return [one for one in Verdict if one is not Verdict.NOT_ASKED or self.not_asked]

    def count(self, verdict: Verdict) -> int:
        """Return how many vectors have a verdict."""
        return sum(one.verdict is verdict for one in self.judged)


def _vectors(number: int) -> str:
    """Return a number of vectors.

    >>> _vectors(1), _vectors(2)
    ('1 vector', '2 vectors')
    """
    return f"{number} vector{'s' * (number != 1)}"


def table(report: Report) -> Table:
    """Return the verdicts by set."""
    shown, verdicts = Table(), report.verdicts
    shown.add_column("set", no_wrap=True)
    for verdict in verdicts:
        shown.add_column(verdict.value, justify="right", header_style=STYLES[verdict])
    for name, counts in counted(report.judged).items():
        shown.add_row(name, *(str(counts[verdict] or "") for verdict in verdicts))
    shown.add_section()
    shown.add_row("all", *(str(report.count(verdict) or "") for verdict in verdicts))
    return shown


def failures(report: Report, *, differences: bool) -> Text:
    """Return the vectors that failed, a line each, and where their ids differ.

    Those that were not asked have one line together.
    """
    text = Text()
    for one in report.failed:
        if one.verdict is Verdict.NOT_ASKED:
            continue
        text.append(f"{one.verdict.value:<12}", STYLES[one.verdict])
        text.append(f" {one.vector.id}: {one.detail}\n")
        if differences and one.difference is not None:
            text.append(f"{one.difference}\n\n", "dim")
    return text.append(f"{report.not_asked}\n" if report.not_asked else "")


def to_json(report: Report) -> str:
    """Return the report as a JSON object."""
    data = {
        "version": VERSION,
        "command": report.command,
        "counts": {
            name: {verdict.value: counts[verdict] for verdict in Verdict}
            for name, counts in counted(report.judged).items()
        },
        "vectors": [_plain(one) for one in report.judged],
    }
    return json.dumps(data, indent=1)


def _plain(one: Judged) -> dict[str, Any]:
    vector = {"id": one.vector.id, "title": one.vector.title, "verdict": one.verdict.value}
    difference = one.difference
    more = {} if difference is None else {"position": difference.place, "ids": list(difference.given)}
    return vector | ({"detail": one.detail} if one.detail else {}) | more


def to_html(report: Report) -> str:
    """Return the report as a page, complete in itself."""
    return render(
        "conform/page.html.jinja",
        report=report,
        counts=counted(report.judged),
        verdicts=report.verdicts,
    )
