"""The results of all programs as a page in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import attrs

from benchmarks.templating import environment
from tito_io.conform.judge import Judged, Verdict
from tito_io.conform.report import Report
from tito_io.conform.scenario import VERSION


@attrs.frozen
class Result:
    """The verdicts on one program.

    Attributes:
        name: The program and its version.
        operation: What was called, in Markdown.
        report: The verdicts.
    """

    name: str
    operation: str
    report: Report

    def groups(self, verdict: str) -> str:
        """Return the groups of vectors with a verdict, the largest first; numbers other than 1 are given."""
        found = Counter(_group(one) for one in self.report.judged if one.verdict.value == verdict)
        ordered = sorted(found.items(), key=_largest_first)
        return ", ".join(f"{name} ({count})" if count > 1 else name for name, count in ordered)


def markdown(results: Sequence[Result], day: date) -> str:
    """Return the page."""
    pages = environment(Path(__file__).parent, keep_trailing_newline=True)
    return pages.get_template("page.md.jinja").render(
        results=results,
        table=list(_table(results)),
        count=len(results[0].report.judged),
        version=VERSION,
        day=f"{day.day} {day:%B %Y}",
    )


def _table(results: Sequence[Result]) -> Iterator[str]:
    yield _row(("program", *(verdict.value for verdict in Verdict)))
    yield _row(["---", *["---:"] * len(Verdict)])
    for one in results:
        yield _row([one.name, *(str(one.report.count(verdict) or "") for verdict in Verdict)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _largest_first(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def _group(judged: Judged) -> str:
    """Return the group of a vector: `valid/chatml/question` belongs to `valid/chatml`.

    Vectors that must be refused are groups of their own.
    """
    return judged.vector.id if judged.vector.set == "refused" else judged.vector.id.rpartition("/")[0]
