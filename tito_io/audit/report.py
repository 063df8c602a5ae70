"""Audit the conversations of a file. A report is a sum: reports of parts add up in any order and grouping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from tito_core import TitoError
from tito_core.drift.audit import Audited, audit
from tito_core.drift.breaks import Break, BreakSelection, BreakText, Cause
from tito_core.drift.renderer import Renderer
from tito_core.drift.tally import Tally
from tito_io.families.folder import FolderError
from tito_io.samples.conversation import Problem
from tito_io.samples.progress import RunProgress, counted
from tito_io.samples.read import StoredConversation

from .rates import FOREIGN, to_json

FIRST = 20
"""Problems that a report has in words; all of them are counted."""


@attrs.frozen(kw_only=True)
class AuditReport:
    """The findings of an audit.

    Attributes:
        tally: Counts over all conversations.
        choice: The breaks to show.
        problems: How many lines could not be read or audited.
        first: The first of these problems, by line.
        engine: Whose prompts were rendered.
        refusal: The first prompt that was refused, and why; empty where none was.
    """

    tally: Tally = attrs.field(factory=Tally)
    choice: BreakSelection
    problems: int = 0
    first: tuple[Problem, ...] = ()
    engine: str = ""
    refusal: str = ""

    def with_problems(self, problems: Iterable[Problem]) -> AuditReport:
        """Return this report with more problems."""
        more = list(problems)
        first = sorted({*self.first, *more}, key=lambda one: (one.line, one.reason))[:FIRST]
        count = sum(1 + one.more for one in more)
        return attrs.evolve(self, problems=self.problems + count, first=tuple(first))

    def __add__(self, other: AuditReport) -> AuditReport:
        return attrs.evolve(
            self.with_problems(other.first),
            tally=self.tally + other.tally,
            choice=self.choice + other.choice,
            problems=self.problems + other.problems,  # `other.first` may be only some of them
            refusal=self.refusal or other.refusal,
        )

    @property
    def hidden(self) -> int:
        """How many problems `first` does not have."""
        return self.problems - sum(1 + one.more for one in self.first)

    @property
    def refuser(self) -> str:
        """Who refuses prompts, and the first of them."""
        engine = f"{self.engine} or " if self.engine else ""
        first = f"; the first is {self.refusal}" if self.refusal else ""
        return f"{engine}the template refuses{first}"

    @property
    def shown(self) -> tuple[Break, ...]:
        """The breaks to show: of a first prompt of another model only where it differs itself."""
        foreign = self.tally.foreign_conversations
        return tuple(one for one in self.choice.shown if not foreign or one.cause is Cause.RENDERING)

    @property
    def hypothetical(self) -> int:
        """How many breaks did not happen, because their prompts were sent as ids."""
        return self.tally.breaks - self.tally.actual_breaks

    @property
    def headline(self) -> str:
        """The findings in one line, or in two if breaks did not happen."""
        tally = self.tally
        conversations = counted(tally.conversations, "conversation")
        if not tally.compared_prompts:
            calls = counted(tally.calls, "call")
            return f"nothing could be compared: {conversations} with {calls}, but no prompt to render"
        foreign = tally.foreign_conversations
        if foreign:
            some = f" of {foreign:,} of {conversations}" if foreign < tally.conversations else ""
            return f"the first prompt{some} {FOREIGN}"
        compared = f"{conversations}, {counted(tally.compared_prompts, 'prompt')} compared"
        if not tally.breaks:
            return f"no drift in {compared}"
        others = f";\n{self.hypothetical:,} would have happened with a fresh render"
        return f"{counted(tally.actual_breaks, 'break')} in {compared}{others * bool(self.hypothetical)}"

    def fails(self, *, hypothetical: bool) -> bool:
        """Whether breaks were found, those that did not happen only if asked for, or ids of another model."""
        found = self.tally.breaks if hypothetical else self.tally.actual_breaks
        return bool(found or self.tally.foreign_conversations)

    @property
    def whole(self) -> bool:
        """Whether every prompt of the file was compared, and there was at least one."""
        tally = self.tally
        left = tally.refused_prompts + tally.prompts_with_media + tally.prompts_without_messages
        return bool(tally.compared_prompts) and not (self.problems or left)


def break_to_json(one: Break) -> dict[str, Any]:
    """Return a break as plain data; causes and parts by their names.

    A token is its id and text; a medium has `ids` and `medium`, too.
    """
    names = {"part": one.part.name.lower(), "cause": one.cause.name.lower()}
    sides = {name: list(map(_token_to_json, getattr(one, name))) for name in ("used", "rendered")}
    return {**attrs.asdict(one), **names, **sides, "also": [also.name.lower() for also in one.also]}


def _token_to_json(piece: BreakText) -> dict[str, Any]:
    data = attrs.asdict(piece)
    return data if piece.medium is not None else {"id": piece.id, "text": piece.text}


def summary(report: AuditReport) -> dict[str, Any]:
    """Return the counts, the rates and the first problems as plain data."""
    problems = [{"line": one.line, "reason": one.reason} for one in report.first]
    found = {**to_json(report.tally), "problems": report.problems, "first_problems": problems}
    return {**found, "rendered_as": report.engine, "first_refusal": report.refusal or None}


def audit_each(
    stored: Iterable[StoredConversation | Problem],
    renderer: Renderer,
    *,
    block: int = 16,
    show: int = 20,
    on_break: Callable[[Break], None] = lambda _: None,
) -> AuditReport:
    """Audit conversations.

    Args:
        stored: What was read from a file, such as `conversations(path)`.
        renderer: Renders messages and decodes ids.
        block: Ids in a block of the engine's prefix cache.
        show: How many breaks the report has at most.
        on_break: Called with every break.
    """
    report = AuditReport(choice=BreakSelection(show))
    for report in growing_reports(stored, renderer, block=block, show=show, on_break=on_break):  # noqa: B007  # the last is used
        pass
    return report


def growing_reports(
    stored: Iterable[StoredConversation | Problem],
    renderer: Renderer,
    *,
    block: int,
    show: int,
    on_break: Callable[[Break], None] = lambda _: None,
    progress: RunProgress | None = None,
) -> Iterator[AuditReport]:
    """Yield the report so far after each conversation; `progress` shows which one is audited."""
    report, progress = AuditReport(choice=BreakSelection(show)), progress or RunProgress()
    for one in stored:
        if not isinstance(one, Problem):
            progress.on_step(f"{one.name:.30}: {counted(len(one.forest), 'call')}", draw=False)
        result = one if isinstance(one, Problem) else _audit(one, renderer, block)
        if isinstance(result, Problem):
            report = report.with_problems([result])
        else:
            for found in result.breaks:
                on_break(found)
            choice = BreakSelection(show).with_breaks(result.breaks)
            report += AuditReport(tally=result.tally, choice=choice, refusal=result.refusal)
        yield report


def _audit(stored: StoredConversation, renderer: Renderer, block: int) -> Audited | Problem:
    """Audit a conversation; an error of this conversation alone is a problem and does not end the run."""
    try:
        return audit(stored.forest, renderer, name=stored.name, block=block)
    except FolderError:
        raise
    except TitoError as error:
        return Problem(stored.first, f"conversation {stored.name!r:.60} cannot be audited: {error}")
