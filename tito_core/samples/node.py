"""A call's place in a forest."""

from __future__ import annotations

from enum import Enum

import attrs

from ..normalization.receipts import Forgiveness
from .call import StoredCall


class EdgeKind(Enum):
    """How a call came about; of those that hold, the first in this order."""

    RETRIES = "another call, the first of them, was sent the same prompt ids"
    REWRITES = (
        "its messages go on from a call whose ids its prompt does not begin with: rendered again, or edited"
    )
    CONTINUES = "its prompt ids begin with all the ids of a call"
    COMPACTS = "a shorter prompt that restates a turn, or quotes an answer, of an earlier call"
    UNRELATED = "nothing before it is known"


@attrs.frozen(kw_only=True)
class Node:
    """A call, what its ids continue, and how it came about."""

    call: StoredCall
    parent: str | None = None
    """The call whose ids begin the prompt ids, the longest one. This is the tree that rows are made of."""
    kind: EdgeKind = EdgeKind.UNRELATED
    of: str | None = None
    """The call that `kind` speaks of: for CONTINUES the parent."""
    rivals: tuple[str, ...] = ()
    """All calls with the very ids of `parent` (where it rewrites: the very messages of `of`), if several."""
    forgiven: frozenset[Forgiveness] = frozenset()
    """What differs in spelling between a rewritten call's messages and the prompt."""

    @property
    def name(self) -> str:
        """The call's name."""
        return self.call.name
