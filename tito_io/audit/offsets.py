"""Where the conversations of a file lie, and reading them there: the two ends of work that travels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tito_io.samples.distributed import Reach, reach
from tito_io.samples.forms import FORMS
from tito_io.samples.line_groups import Collector, ReadOptions
from tito_io.samples.lines import FileLine
from tito_io.samples.problem import Problem
from tito_io.samples.read import StoredConversation, chunks, stored


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
