"""Stored conversations, one after the other: lines become forests, and nothing is passed over in silence.

No more than one conversation is held at a time, so its lines must stand together; where they do not, the
later ones are problems, and so is everything else that is in no forest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from tito_core import Forest

from .chunks import Chunk, Collector, Reading
from .lines import lines
from .problem import Problem


@attrs.frozen(kw_only=True)
class Stored:
    """A conversation that was read."""

    name: str
    forest: Forest
    first: int
    """Its first line, counted from 1."""
    last: int


def conversations(
    path: Path, reading: Reading | None = None, tick: Callable[[int], None] = lambda _: None
) -> Iterator[Stored | Problem]:
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
    reading: Reading | None = None,
    tick: Callable[[int], None] = lambda _: None,
    *,
    make: bool = True,
) -> Iterator[Chunk | Problem]:
    """Yield the lines that belong together; see `conversations`.

    With `make=False` they are told apart and not read any further: `stored` has nothing to say of them.
    """
    collected = Collector(path, reading or Reading(), make=make)
    for line in lines(path, tick):
        yield from collected.add(line)
    yield from collected.rest()
    if collected.form is None:
        raise collected.hopeless()


def stored(chunk: Chunk) -> Iterator[Stored | Problem]:
    """Yield the conversations of some lines, and what of them could not be read."""
    for one in chunk.conversations.values():
        yield from one.problems
        if one.calls:
            forest = Forest.of(one.calls.values())
            yield Stored(name=one.name, forest=forest, first=one.first, last=one.last)
