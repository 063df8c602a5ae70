"""Write stored conversations in another format, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import attrs

from tito_core import InputError

from .conversation import Problem
from .forms import FORMS, StoredForm
from .read import StoredConversation
from .rows import Tally, make_each

WRITABLE = {name: form for name, form in FORMS.items() if form.write is not None}
"""The formats that can be written, by name."""


@attrs.define
class ConvertedTally(Tally):
    """Counts over the conversations that were written in another format.

    Attributes:
        conversations: Conversations that were written.
        calls: Their calls.
        sampled_ids: Ids that these calls sampled.
        lines: Lines that were written.
        problems: Lines, parts of lines and conversations that could not be read or written.
    """

    conversations: int = 0
    calls: int = 0
    sampled_ids: int = 0
    lines: int = 0
    problems: int = 0


def require_lines(path: Path | None, form: StoredForm) -> None:
    """Raise `InputError` for a file whose name says that it has no lines."""
    if path is not None and path.suffix != ".jsonl":
        raise InputError(
            f"{path}: `{form.name}` has one JSON object per line: name a file that ends in .jsonl"
        )


def converted(
    stored: Iterable[StoredConversation | Problem], form: StoredForm, *, expand: bool
) -> Iterator[tuple[StoredConversation, list[bytes]] | Problem]:
    """Yield each conversation with its lines; one that cannot be written is a problem at its first line."""
    write = form.write
    if write is None:
        raise InputError(f"`{form.name}` is only read: choose one of {', '.join(WRITABLE)}")
    return make_each(stored, lambda one: (one, list(write(one.name, one.forest, expand))))


def write_converted(
    file: BinaryIO,
    found: Iterable[tuple[StoredConversation, list[bytes]] | Problem],
    tally: ConvertedTally,
    on_problem: Callable[[Problem], None],
) -> None:
    """Write the lines of conversations and count them in `tally`."""
    for one in found:
        if isinstance(one, Problem):
            tally.problems += 1 + one.more
            on_problem(one)
            continue
        stored, lines = one
        file.writelines(lines)
        tally.conversations += 1
        tally.calls += len(stored.forest)
        tally.sampled_ids += sum(call.stop - call.start for call in stored.forest.calls)
        tally.lines += len(lines)
