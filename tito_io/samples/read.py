"""Stored conversations, one after the other: lines become forests, and nothing is passed over in silence.

No more than one conversation is held at a time, so its lines must stand together; where they do not, the
later ones are problems, and so is everything else that is in no forest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from tito_core import InputError
from tito_core.samples import Forest

from .conversation import GIVE, Nameless, Problem, without_id
from .line_groups import Chunk, Collector, ReadOptions
from .lines import lines


@attrs.frozen(kw_only=True)
class StoredConversation:
    """A conversation that was read."""

    name: str
    forest: Forest
    first: int
    """Its first line, counted from 1."""
    last: int


def conversations(
    path: Path, reading: ReadOptions | None = None, tick: Callable[[int], None] = lambda _: None
) -> Iterator[StoredConversation | Problem]:
    """Yield the conversations of a file in its order, and what could not be read.

    `tick` is told how many bytes of the file are read. Raises `InputError` where there is no such file, or
    its lines are of no known form.
    """
    for found in chunks(path, reading, tick):
        if isinstance(found, Problem):
            yield found
        else:
            yield from stored(found)


def chunks(
    path: Path,
    reading: ReadOptions | None = None,
    tick: Callable[[int], None] = lambda _: None,
    *,
    make: bool = True,
) -> Iterator[Chunk | Problem]:
    """Yield the lines that belong together; see `conversations`.

    With `make=False` they are told apart and not read any further: `stored` has nothing to say of them.
    Lines without the id that was asked for are one problem, at the end; `InputError` where no line has it.
    """
    reading = reading or ReadOptions()
    collected, nameless, count = Collector(path, reading, make=make), 0, 0
    for line in lines(path, tick):
        for one in collected.add(line):
            if isinstance(one, Nameless):
                nameless, count = nameless or one.line, count + 1
            else:
                yield one
    yield from collected.rest()
    if collected.form is None:
        raise collected.hopeless()
    if nameless:
        if not collected.named:
            raise InputError(f"{path}: no line has an id at `{reading.id_field}`: {GIVE}")
        yield Problem(nameless, without_id(str(reading.id_field), count - 1), count - 1)


def stored(chunk: Chunk) -> Iterator[StoredConversation | Problem]:
    """Yield the conversations of some lines, and what of them could not be read."""
    told: set[Problem] = set()
    for one in chunk.conversations.values():
        yield from (problem for problem in dict.fromkeys(one.problems) if problem not in told)
        told.update(one.problems)
        if one.calls:
            forest = Forest.of(one.calls.values())
            yield StoredConversation(name=one.name, forest=forest, first=one.first, last=one.last)
