"""From what was read to rows, a conversation at a time: what one process does, and each of many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from tito_core import InputError
from tito_core.samples import SampleOptions

from .entry import Entry, entries
from .problem import Problem
from .read import StoredConversation
from .tally import FileTally


@attrs.frozen
class ConversationRows:
    """The rows of a conversation, with what they amount to."""

    entries: tuple[Entry, ...]
    tally: FileTally


def made(
    found: Iterable[StoredConversation | Problem], options: SampleOptions
) -> Iterator[ConversationRows | Problem]:
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
        tally = FileTally()
        tally.add(one.forest, sampled)
        yield ConversationRows(tuple(rows), tally)
