"""Calls that would do equally well, and the rule that takes one of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter

from .call import StoredCall


class Candidates:
    """Calls by their key; gathered while a forest is made."""

    def __init__(self, calls: Iterable[StoredCall] = ()) -> None:
        """Hold `calls`, which come by their key."""
        self._calls = list(calls)

    def add(self, call: StoredCall) -> None:
        """Hold one more, which comes after those before."""
        self._calls.append(call)

    def chosen(self, call: StoredCall) -> StoredCall | None:
        """Return the latest that precedes `call` by its key, or the first after it where none does."""
        if not self._calls:
            return None
        return self._calls[max(bisect_left(self._calls, call.key, key=attrgetter("key")) - 1, 0)]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All of them where there was a choice, and none where there was not. For when all have come."""
        return tuple(call.name for call in self._calls) if len(self._calls) > 1 else ()


NOBODY = Candidates()
