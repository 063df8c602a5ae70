"""Make rows on the machines of a Ray cluster, the same ones that a single process makes.

This process reads the file once, to see which lines belong together, and sends only their places. The
machines read the lines themselves, so the file must have the same path on all of them and be uncompressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs

from tito_core import InputError
from tito_core.samples import SampleOptions

from .conversation import Problem
from .forms import FORMS
from .line_groups import LineGrouper, ReadOptions
from .lines import FileLine, read_line, require_plain_file
from .progress import RunProgress
from .ray import check_address, spread
from .read import StoredConversation, conversations_in, line_groups
from .rows import ConversationRows, to_rows


@attrs.frozen(kw_only=True)
class GroupPlace:
    """The places of the lines of a group in a file.

    Attributes:
        path: The file.
        form: The name of its format.
        numbers: The lines' numbers; lines between them could not be read.
        starts: The bytes before each line.
    """

    path: Path
    form: str
    numbers: tuple[int, ...]
    starts: tuple[int, ...]


def group_places(
    path: Path, reading: ReadOptions, progress: RunProgress | None = None
) -> Iterator[GroupPlace | Problem]:
    """Yield where the groups of a file are, and what belongs to none."""
    for one in line_groups(path, reading, progress, make_calls=False):
        if isinstance(one, Problem):
            yield one
            continue
        numbers, starts = tuple(line.number for line in one.lines), tuple(line.start for line in one.lines)
        yield GroupPlace(path=path.absolute(), form=one.form.name, numbers=numbers, starts=starts)


def conversations_at(place: GroupPlace, reading: ReadOptions) -> Iterator[StoredConversation | Problem]:
    """Read the lines at a place; a file that has changed or cannot be read any more is one problem."""
    grouper = LineGrouper(place.path, reading, form=FORMS[place.form])
    try:
        with place.path.open("rb") as file:
            for number, start in zip(place.numbers, place.starts, strict=True):
                file.seek(start)
                raw = read_line(file, start, reading.max_line)
                # These lines made one group before, so none of them may be a problem or begin another group.
                for one in grouper.add(FileLine(number, start, raw)):
                    detail = one if isinstance(one, Problem) else f"line {number}: it begins a conversation"
                    yield Problem(place.numbers[0], f"the file has changed: {detail}")
                    return
    except InputError as error:
        yield Problem(place.numbers[0], f"the file has changed: {error}")
        return
    except OSError as error:
        yield Problem(place.numbers[0], f"the file cannot be read again: {error.strerror}")
        return
    for group in grouper.finish():
        yield from conversations_in(group)


def rows_at(
    place: GroupPlace, reading: ReadOptions, options: SampleOptions
) -> list[ConversationRows | Problem]:
    """Return the rows of the lines at a place."""
    return list(to_rows(conversations_at(place, reading), options))


def spread_over(
    address: str,
    path: Path,
    reading: ReadOptions,
    options: SampleOptions,
    progress: RunProgress | None = None,
) -> Iterator[ConversationRows | Problem]:
    """Yield what one process would yield: first the problems of single lines, then conversations in order.

    Args:
        address: The cluster: `host:port`, `auto`, or `local` to start one.
        path: The file.
        reading: How to read it.
        options: How to make rows.
        progress: Updated while the file is read, and after each group of lines.

    Raises:
        InputError: There is no cluster, or the file is compressed or in no recognized format.
    """
    check_address(address)  # before the file is read and Ray is imported, which takes seconds
    require_plain_file(path)
    progress = progress or RunProgress()
    places = []
    for one in group_places(path, reading, progress):
        if isinstance(one, Problem):
            yield one
        else:
            places.append(one)
    results = spread(partial(rows_at, reading=reading, options=options), places, address)
    for number, rows in enumerate(results, 1):
        progress.on_step(f"{number:,} of {len(places):,} conversations made into rows")
        yield from rows
