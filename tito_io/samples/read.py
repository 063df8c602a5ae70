"""Read stored conversations: the lines of a file become forests of calls.

One group of lines is in memory at a time, so the lines of a conversation must follow each other. Whatever
is in no forest is yielded as a `Problem`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from tito_core import InputError
from tito_core.samples import Forest

from .conversation import Problem
from .line_groups import (
    NAME_A_FIELD,
    LineGroup,
    LineGrouper,
    MissingId,
    ReadOptions,
    SeparatedLine,
    separated,
    without_id,
)
from .lines import lines
from .progress import RunProgress


@attrs.frozen(kw_only=True)
class StoredConversation:
    """A conversation that was read from a file.

    Attributes:
        name: Its id, or a name made of the file's.
        forest: Its calls.
        first: Its first line, counted from 1.
        last: Its last line.
    """

    name: str
    forest: Forest
    first: int
    last: int


def conversations(
    path: Path, reading: ReadOptions | None = None, progress: RunProgress | None = None
) -> Iterator[StoredConversation | Problem]:
    """Yield the conversations of a file in its order, and a `Problem` for what could not be read.

    Args:
        path: The file; `.gz` and `.zst` files are decompressed.
        reading: How to read it; by default the format is recognized and lines are grouped by id.
        progress: Updated while the file is read.

    Raises:
        InputError: The file does not exist, or no line of it is in a recognized format.
    """
    for group in line_groups(path, reading, progress):
        if isinstance(group, Problem):
            yield group
        else:
            yield from conversations_in(group)


def line_groups(
    path: Path,
    reading: ReadOptions | None = None,
    progress: RunProgress | None = None,
    *,
    make_calls: bool = True,
) -> Iterator[LineGroup | Problem]:
    """Yield the lines that belong together; see `conversations`.

    With `make_calls=False` no calls are made, so that a group says only which lines it has. Lines without the
    id that was asked for are one problem at the end, or an `InputError` if no line has it. Lines that stand
    apart from their conversation's others are one problem at the end, too.
    """
    reading, progress = reading or ReadOptions(), progress or RunProgress()
    grouper = LineGrouper(path, reading, make_calls=make_calls, progress=progress)
    first_without_id, count = 0, 0
    late: SeparatedLine | None = None
    more = -1
    for line in lines(path, progress.on_read, reading.max_line):
        for one in grouper.add(line):
            if isinstance(one, MissingId):
                first_without_id, count = first_without_id or one.line, count + 1
            elif isinstance(one, SeparatedLine):
                late, more = late or one, more + 1
            else:
                yield one
    yield from grouper.finish()
    if grouper.form is None:
        raise grouper.nothing_readable()
    if first_without_id:
        if not grouper.complete:
            raise InputError(f"{path}: no line has an id at `{reading.id_field}`: {NAME_A_FIELD}")
        yield Problem(first_without_id, without_id(str(reading.id_field), count - 1), count - 1)
    if late is not None:
        yield separated(late, more)


def conversations_in(group: LineGroup) -> Iterator[StoredConversation | Problem]:
    """Yield the conversations of a group of lines, and what of them could not be read."""
    seen: set[Problem] = set()  # conversations of one line may share a problem
    for one in group.conversations.values():
        yield from (problem for problem in dict.fromkeys(one.problems) if problem not in seen)
        seen.update(one.problems)
        if one.calls:
            forest = Forest.of(one.calls.values())
            yield StoredConversation(name=one.name, forest=forest, first=one.first, last=one.last)
