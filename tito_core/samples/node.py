"""Nodes of a forest: a call, its parent call, and how the call relates to an earlier one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum
from functools import cached_property
from operator import attrgetter

import attrs

from ..normalization.receipts import Forgiveness
from .call import StoredCall


class EdgeKind(Enum):
    """How a call relates to an earlier one. If several kinds apply, the first in this order counts."""

    RETRIES = "an earlier call was sent the same prompt ids"
    REWRITES = "its messages continue a call, but its prompt ids do not: rendered again or edited"
    CONTINUES = "its prompt ids begin with all ids of a call"
    COMPACTS = "its shorter prompt restates a turn or quotes an answer of an earlier call"
    UNRELATED = "no earlier call explains it"


@attrs.frozen(kw_only=True)
class Node:
    """A call, the call whose ids it continues, and how it relates to an earlier one.

    Attributes:
        call: The call itself.
        parent: Name of the longest call whose ids all begin the prompt ids; None without any.
            Rows are made along parents.
        kind: How the call relates to an earlier one.
        of: Name of the call that `kind` refers to; for `CONTINUES` the parent. None for `UNRELATED`.
        rivals: Names of all calls that could equally be `parent` (for `REWRITES`: equally be `of`).
            Empty where there was one choice.
        forgiven: Differences in spelling between the messages of `of` and the prompt, for `REWRITES`.
        name: Name of the call.
    """

    call: StoredCall
    parent: str | None = None
    kind: EdgeKind = EdgeKind.UNRELATED
    of: str | None = None
    rivals: tuple[str, ...] = ()
    forgiven: frozenset[Forgiveness] = frozenset()

    @property
    def name(self) -> str:
        """The call's name."""
        return self.call.name


class Candidates:
    """Calls with equal ids, or equal messages, sorted by key: any of them could be a call's parent."""

    def __init__(self, calls: Iterable[StoredCall] = ()) -> None:
        """Take `calls`, sorted by key."""
        self._calls = list(calls)

    def add(self, call: StoredCall) -> None:
        """Append a call whose key is greater than all before."""
        self._calls.append(call)

    def choose(self, call: StoredCall) -> StoredCall | None:
        """Return the latest candidate before `call` by key, else the first one; None without any."""
        if not self._calls:
            return None
        return self._calls[max(bisect_left(self._calls, call.key, key=attrgetter("key")) - 1, 0)]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates where there are several, else empty. Read it after the last `add`."""
        # Cached, so that thousands of retries of one prompt share one tuple.
        return tuple(call.name for call in self._calls) if len(self._calls) > 1 else ()


NO_CANDIDATES = Candidates()
