"""From what was read to rows, a conversation at a time: what one process does, and each of many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from tito_core import InputError
from tito_core.samples import SampleOptions

from .entry import Entry, entries
from .problem import Problem
from .read import Stored
from .tally import Tally


@attrs.frozen
class Made:
    """The rows of a conversation, with what they amount to."""

    entries: tuple[Entry, ...]
    tally: Tally


def made(found: Iterable[Stored | Problem], options: SampleOptions) -> Iterator[Made | Problem]:
    """Yield the rows of each conversation in its turn.

    A conversation of which the kernel can make no rows, by two different rewards for example, is a problem
    at its first line.
    """
    for one in found:
        if isinstance(one, Problem):
            yield one
            continue
        try:
            rows, sampled = entries(one, options)
        except InputError as error:
            yield Problem(one.first, f"conversation {one.name!r:.60}: {error}")
            continue
        tally = Tally()
        tally.add(one.forest, sampled)
        yield Made(tuple(rows), tally)
