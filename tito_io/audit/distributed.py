"""The same audit on the machines of a cluster: parts of a file become reports, which add up in any order.

This process reads the file once, to see which lines belong together; what travels is where they lie. The
machines read the file and the family there, so both must be at the same path on all of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import attrs

from tito_core.drift.breaks import Break, BreakSelection
from tito_io.samples.conversation import Problem
from tito_io.samples.distributed import Reach, reach
from tito_io.samples.forms import FORMS
from tito_io.samples.line_groups import Collector, ReadOptions
from tito_io.samples.lines import FileLine, regular
from tito_io.samples.ray import knock, spread
from tito_io.samples.read import StoredConversation, chunks, stored

from .rendering import AuditRendering, FamilyRenderer
from .report import AuditReport, audit_each

TOGETHER = 32
"""Conversations in a piece of work: a family is loaded once a process, and a report travels once a piece."""


@attrs.frozen(kw_only=True)
class AuditWork:
    """What each machine needs to know beside the places."""

    rendering: AuditRendering
    reading: ReadOptions
    block: int
    show: int
    every_break: bool
    """Whether all breaks travel, and not only those that may be shown."""


@attrs.frozen
class PartialReport:
    """What came of a piece of work."""

    report: AuditReport
    breaks: tuple[Break, ...]


def spread_file(
    address: str, path: Path, work: AuditWork, each: Callable[[Break], None], tick: Callable[[int], None]
) -> AuditReport:
    """Return the report that one process would make; `each` is told of the breaks in their order.

    Raises `InputError` where there is no cluster, or the file is compressed or of no known form.
    """
    knock(address)  # before the file is read, and Ray is loaded
    regular(path)
    work.rendering.load()  # what is wrong with the family is said here, and not by every machine
    found: list[Reach] = []
    problems: list[Problem] = []
    for one in places(path, work.reading, tick):
        if isinstance(one, Problem):
            problems.append(one)
        else:
            found.append(one)
    report = AuditReport(choice=BreakSelection(work.show)).with_problems(problems)
    rest = iter(found)
    batches = list(iter(lambda: tuple(islice(rest, TOGETHER)), ()))
    for made in spread(partial(made_of, work=work), batches, address):
        report += made.report
        for one_break in made.breaks:
            each(one_break)
    return report


def made_of(found: Sequence[Reach], work: AuditWork) -> PartialReport:
    """Audit the conversations at some places: a pure function, but for the file and the family."""
    breaks: list[Break] = []
    conversations = (one for place in found for one in again(place, work.reading))
    each = breaks.append if work.every_break else lambda _: None
    report = audit_each(conversations, _loaded(work.rendering), block=work.block, show=work.show, each=each)
    return PartialReport(report, tuple(breaks))


_FAMILIES: dict[bytes, FamilyRenderer] = {}


def _loaded(rendering: AuditRendering) -> FamilyRenderer:
    """Return the family, loaded once a process."""
    key = pickle.dumps(rendering)
    if key not in _FAMILIES:
        _FAMILIES.clear()
        _FAMILIES[key] = rendering.load()
    return _FAMILIES[key]


def places(
    path: Path, reading: ReadOptions, tick: Callable[[int], None] = lambda _: None
) -> Iterator[Reach | Problem]:
    """Yield where lines lie that belong together, and what belongs nowhere."""
    for one in chunks(path, reading, tick, make=False):
        yield one if isinstance(one, Problem) else reach(path.absolute(), one)


def again(found: Reach, reading: ReadOptions) -> Iterator[StoredConversation | Problem]:
    """Read lines where they lie; a file that is another by now, or cannot be read any more, is a problem."""
    collected = Collector(found.path, reading, form=FORMS[found.form])
    try:
        changed = _taken(found, collected)
    except OSError as error:
        changed = Problem(found.numbers[0], f"the file cannot be read again: {error.strerror}")
    if changed is not None:
        yield changed
        return
    for chunk in collected.rest():
        yield from stored(chunk)


def _taken(found: Reach, collected: Collector) -> Problem | None:
    """Take in the lines; return what is wrong with one of them."""
    with found.path.open("rb") as file:
        for number, start in zip(found.numbers, found.starts, strict=True):
            file.seek(start)
            held = list(collected.add(FileLine(number, start, file.readline())))
            if held:
                return Problem(number, f"the file has changed: {held[0]}")
    return None
