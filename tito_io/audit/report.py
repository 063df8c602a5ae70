"""What an audit of a file found, as a value that grows by adding, in any order and in any groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs

from tito_core import TitoError
from tito_core.drift.audit import Audited, audit
from tito_core.drift.breaks import Break, BreakSelection
from tito_core.drift.renderings import Renderer
from tito_core.drift.tally import Tally
from tito_io.families.folder import FolderError
from tito_io.samples.conversation import Problem
from tito_io.samples.line_groups import ReadOptions
from tito_io.samples.read import StoredConversation, conversations

FIRST = 20
"""Problems that are held by name; all are counted."""


@attrs.frozen(kw_only=True)
class AuditReport:
    """Counts, the breaks to show, and what could not be read."""

    tally: Tally = attrs.field(factory=Tally)
    choice: BreakSelection
    problems: int = 0
    first: tuple[Problem, ...] = ()
    """The first problems by their lines."""

    def with_problems(self, problems: Iterable[Problem]) -> AuditReport:
        """Return this report with lines that nobody could read, or audit."""
        found = list(problems)
        first = sorted({*self.first, *found}, key=lambda one: (one.line, one.reason))[:FIRST]
        more = sum(1 + one.more for one in found)
        return attrs.evolve(self, problems=self.problems + more, first=tuple(first))

    def __add__(self, other: AuditReport) -> AuditReport:
        both = AuditReport(
            tally=self.tally + other.tally,
            choice=self.choice + other.choice,
            problems=self.problems,
            first=self.first,
        )
        held = both.with_problems(other.first)
        return attrs.evolve(held, problems=self.problems + other.problems)

    @property
    def hidden(self) -> int:
        """How many lines no problem in `first` speaks of."""
        return self.problems - sum(1 + one.more for one in self.first)

    @property
    def whole(self) -> bool:
        """Whether all that the file holds was compared, and that was something."""
        tally = self.tally
        return bool(tally.compared) and not (self.problems or tally.refused or tally.media or tally.wordless)


def to_json(one: Break) -> dict[str, Any]:
    """Return a break as plain data; causes and parts by name."""
    data = attrs.asdict(one)
    return {**data, "part": one.part.name, "cause": one.cause.name, "also": [also.name for also in one.also]}


def summary(report: AuditReport) -> dict[str, Any]:
    """Return the counts and rates as plain data; a rate of nothing is null."""
    tally = report.tally
    rates = {
        "by_token": tally.by_token,
        "by_turn": tally.by_turn,
        "by_rollout": tally.by_rollout,
        "lost_to_merging": tally.lost,
        "reuse_lost": tally.reuse_lost,
    }
    problems = [{"line": one.line, "reason": one.reason} for one in report.first]
    return {**attrs.asdict(tally), **rates, "problems": report.problems, "first_problems": problems}


def audit_file(
    path: Path,
    renderer: Renderer,
    *,
    reading: ReadOptions | None = None,
    block: int = 16,
    show: int = 20,
    each: Callable[[Break], None] = lambda _: None,
    tick: Callable[[int], None] = lambda _: None,
) -> AuditReport:
    """Audit the conversations of a file; `each` is told of every break, `tick` of the bytes that are read.

    Raises `InputError` where there is no such file or none of its lines is of a known form.
    """
    return audit_each(conversations(path, reading, tick), renderer, block=block, show=show, each=each)


def audit_each(
    found: Iterable[StoredConversation | Problem],
    renderer: Renderer,
    *,
    block: int = 16,
    show: int = 20,
    each: Callable[[Break], None] = lambda _: None,
) -> AuditReport:
    """Audit conversations as they come."""
    report = AuditReport(choice=BreakSelection(show))
    for one in found:
        audited = one if isinstance(one, Problem) else _audited(one, renderer, block)
        if isinstance(audited, Problem):
            report = report.with_problems([audited])
            continue
        for each_break in audited.breaks:
            each(each_break)
        report += AuditReport(tally=audited.tally, choice=BreakSelection(show).with_breaks(audited.breaks))
    return report


def _audited(one: StoredConversation, renderer: Renderer, block: int) -> Audited | Problem:
    """Audit a conversation; what is wrong with it alone is a problem and stops nothing."""
    try:
        return audit(one.forest, renderer, name=one.name, block=block)
    except FolderError:
        raise
    except TitoError as error:
        return Problem(one.first, f"conversation {one.name!r:.60} cannot be audited: {error}")
