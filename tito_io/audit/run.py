"""A file, one conversation after the other; what is held does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tito_core import TitoError
from tito_core.drift.audit import Audited, audit
from tito_core.drift.breaks import Break
from tito_core.drift.select import BreakSelection
from tito_core.drift.view import Renderer
from tito_io.families.folder import FolderError
from tito_io.samples.line_groups import ReadOptions
from tito_io.samples.problem import Problem
from tito_io.samples.read import StoredConversation, conversations

from .report import AuditReport


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
