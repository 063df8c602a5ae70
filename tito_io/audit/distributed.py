"""Audit a file on the machines of a Ray cluster: reports of its parts add up to the report of one process.

This process reads the file once, to see which lines belong together, and sends only their places. The
machines read the file and the model folder, so both must have the same path on all of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

import attrs

from tito_core.drift.breaks import Break, BreakSelection
from tito_io.samples.conversation import Problem
from tito_io.samples.distributed import GroupPlace, conversations_at, group_places
from tito_io.samples.line_groups import ReadOptions
from tito_io.samples.lines import require_plain_file
from tito_io.samples.progress import RunProgress
from tito_io.samples.ray import check_address, spread

from .rendering import AuditRendering, FamilyRenderer
from .report import AuditReport, audit_each

TOGETHER = 32
"""Groups of lines in one piece of work: one report per piece is sent back."""


@attrs.frozen(kw_only=True)
class AuditWork:
    """The data that each machine needs besides the places of lines.

    Attributes:
        rendering: The model folder and how to render with it.
        reading: How to read the file.
        block: Ids in a block of the engine's prefix cache.
        show: How many breaks a report has at most.
        every_break: Whether all breaks are sent back, and not only those of the report.
    """

    rendering: AuditRendering
    reading: ReadOptions
    block: int
    show: int
    every_break: bool


@attrs.frozen
class PartialReport:
    """The result of one piece of work: its report and, if asked for, all its breaks."""

    report: AuditReport
    breaks: tuple[Break, ...]


def growing_reports(
    address: str, path: Path, work: AuditWork, on_break: Callable[[Break], None], progress: RunProgress
) -> Iterator[AuditReport]:
    """Yield the report so far after each piece of work; the last one is that of a single process.

    `on_break` is called with the breaks in their order. Raises `InputError` if there is no cluster, or the
    file is compressed or in no recognized format.
    """
    check_address(address)  # before the file is read and Ray is imported, which takes seconds
    require_plain_file(path)
    work.rendering.load()  # an error of the model folder is raised here, and not on every machine
    items = list(group_places(path, work.reading, progress))
    places = [one for one in items if not isinstance(one, Problem)]
    problems = [one for one in items if isinstance(one, Problem)]
    report = AuditReport(choice=BreakSelection(work.show)).with_problems(problems)
    yield report
    rest = iter(places)
    pieces = list(iter(lambda: tuple(islice(rest, TOGETHER)), ()))
    for number, result in enumerate(spread(partial(audit_places, work=work), pieces, address), 1):
        report += result.report
        for one in result.breaks:
            on_break(one)
        progress.on_step(f"{number:,} of {len(pieces):,} pieces audited")
        yield report


def audit_places(places: Sequence[GroupPlace], work: AuditWork) -> PartialReport:
    """Audit the conversations at some places in the file."""
    breaks: list[Break] = []
    stored = (one for place in places for one in conversations_at(place, work.reading))
    renderer = _loaded(pickle.dumps(work.rendering))
    on_break = breaks.append if work.every_break else lambda _: None
    report = audit_each(stored, renderer, block=work.block, show=work.show, on_break=on_break)
    return PartialReport(report, tuple(breaks))


@lru_cache(maxsize=1)
def _loaded(rendering: bytes) -> FamilyRenderer:
    """Return the renderer of pickled options, loaded once per process: reading a tokenizer takes seconds."""
    loaded: AuditRendering = pickle.loads(rendering)  # noqa: S301  # pickled by `audit_places`
    return loaded.load()
