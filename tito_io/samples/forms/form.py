"""What a form must say of itself: how to know one of its lines, and how to make calls of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from tito_core.samples import StoredCall

Record: TypeAlias = Mapping[str, Any]
"""A line's object."""


@attrs.frozen
class CallPlace:
    """Where calls come from."""

    line: int
    """Counted from 1."""
    calls: Mapping[str, StoredCall]
    """The conversation's calls so far, by name."""

    @property
    def order(self) -> int:
        """The order of the next call, where the file has no other than that of its lines."""
        return len(self.calls)


Maker: TypeAlias = Callable[[CallPlace], Iterable[StoredCall]]
"""Makes the calls of a part of a line; raises `TitoError` where there are none to be made of it."""


@attrs.frozen(kw_only=True)
class Batch:
    """Calls of one conversation, in parts that are read each by itself."""

    conversation: str | None
    """Its id; None where the line has none."""
    parts: Iterable[Maker]


@attrs.frozen(kw_only=True)
class StoredForm:
    """One form."""

    name: str
    told: str
    """What has this form, for people."""
    whole: bool
    """Whether a line holds all of its conversations."""
    knows: Callable[[Record], bool]
    batches: Callable[[Record, int], Iterable[Batch]]
    """Takes a line's object and its number."""


def named(record: Record, *fields: str) -> str | None:
    """Return the first of some fields that has an id: a string, or a whole number.

    >>> named({"a": None, "b": 7}, "a", "b")
    '7'
    """
    for field in fields:
        found = record.get(field)
        if isinstance(found, str) and found:
            return found
        if type(found) is int:
            return str(found)
    return None
