"""The same rows, made on the machines of a cluster.

This process reads the file once, to see which lines belong together; what travels is where they lie. The
machines read them there, so the file must be at the same path on all of them, and uncompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from tito_core import InputError
from tito_core.samples import SampleOptions

from .conversation import Problem
from .forms import FORMS
from .line_groups import Chunk, Collector, ReadOptions
from .lines import FileLine, regular
from .ray import knock, spread
from .read import chunks, stored
from .rows import ConversationRows, made


@attrs.frozen(kw_only=True)
class Reach:
    """Where lines that belong together lie in a file."""

    path: Path
    form: str
    numbers: tuple[int, ...]
    """Which lines they are; others between them could not be read."""
    starts: tuple[int, ...]
    """How many bytes come before each."""


def reach(path: Path, chunk: Chunk) -> Reach:
    """Return where a chunk lies."""
    return Reach(
        path=path,
        form=chunk.form.name,
        numbers=tuple(line.number for line in chunk.lines),
        starts=tuple(line.start for line in chunk.lines),
    )


def rows_of(found: Reach, reading: ReadOptions, options: SampleOptions) -> list[ConversationRows | Problem]:
    """Return the rows of lines: a pure function, but for the file that it reads."""
    try:
        return [one for chunk in _again(found, reading) for one in made(stored(chunk), options)]
    except (InputError, OSError) as error:
        return [Problem(found.numbers[0], f"the file has changed: {error}")]


def _again(found: Reach, reading: ReadOptions) -> Iterator[Chunk]:
    """Yield the lines once more; raises `InputError` where they are not what they were."""
    collected = Collector(found.path, reading, form=FORMS[found.form])
    with found.path.open("rb") as file:
        for number, start in zip(found.numbers, found.starts, strict=True):
            file.seek(start)
            for one in collected.add(FileLine(number, start, file.readline())):
                raise InputError(f"{one if isinstance(one, Problem) else 'its lines lie otherwise'}")
    yield from collected.rest()


def spread_over(
    address: str,
    path: Path,
    reading: ReadOptions,
    options: SampleOptions,
    tick: Callable[[int], None] = lambda _: None,
) -> Iterator[ConversationRows | Problem]:
    """Yield what one process would: first what belongs nowhere, then the conversations in their order.

    Raises `InputError` where there is no cluster, or the file is compressed or none of ours.
    """
    knock(address)  # before the file is read, and Ray is loaded
    regular(path)
    found = []
    for one in chunks(path, reading, tick, make=False):
        if isinstance(one, Problem):
            yield one
        else:
            found.append(reach(path.absolute(), one))
    for several in spread(partial(rows_of, reading=reading, options=options), found, address):
        yield from several
