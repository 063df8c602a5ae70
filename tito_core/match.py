"""Check whether a step's messages begin a prompt: exactly, and as fast as `==` where that is exact.

Most steps that do not match differ in their last message, so that one is compared first. Once a step has
differed earlier than that, the prompt's prefixes are hashed once and further steps are looked up by hash.
A history of a thousand near misses then costs one pass over the prompt, not a thousand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from itertools import accumulate, takewhile
from operator import iconcat
from typing import Any

from .message import Message, Messages, copied
from .normalization.compare import Renaming, forgiving_hash, same_copies
from .normalization.receipts import Forgiveness, exactly

Forgiven = frozenset[Forgiveness]
NOTHING: Forgiven = frozenset()


class PromptMatcher:
    """Compares one prompt with many steps; what one comparison computed is kept for the next.

    Attributes:
        prompt: The messages of the next request.
        forgive: Optional differences that do not prevent a match.
        further_keys: Keys beside those of the identity that must be equal, too.
        near_miss: Whether a step's last message matched and an earlier one did not.
        copies: Private copies of the prompt's messages, by position, as far as they were needed.
    """

    def __init__(
        self, prompt: Sequence[Message], forgive: Forgiven, further_keys: frozenset[str] = frozenset()
    ) -> None:
        self.prompt = prompt
        self.further_keys = further_keys
        self.forgive = forgive
        self.near_miss = False
        self.copies: dict[int, dict[str, Any]] = {}

    @cached_property
    def flat(self) -> list[Message]:
        """The prompt's messages as they were passed, in a list."""
        return self.prompt if type(self.prompt) is list else list(self.prompt)

    @cached_property
    def hashes(self) -> list[int]:
        """The hash of each prefix of the prompt, the empty one first."""
        return list(accumulate(map(self._copy, range(len(self.flat))), _chained, initial=0))

    def fits(self, stored: Messages) -> Forgiven | None:
        """Return the differences that were forgiven if `stored` begins the prompt, else None."""
        if isinstance(self.prompt, Messages) and self.prompt.extends(stored):
            return NOTHING
        if not stored or self._last_differs(stored):
            return None
        if self.near_miss and chain_hash(stored) != self.hashes[stored.length]:
            return None
        forgiven = self._compare(stored)
        self.near_miss = self.near_miss or forgiven is None
        return forgiven

    def _last_differs(self, stored: Messages) -> bool:
        """Compare the last message alone: most steps that do not match differ there."""
        last = stored.length - 1
        if stored.texts and stored.part and _equal(self.flat[last], stored.part[-1]):
            return False
        return self._same(stored[last], last, Renaming(self.forgive)) is None

    def _compare(self, stored: Messages) -> Forgiven | None:
        """Compare all messages: part by part, each with `==` where that is exact."""
        if self._all_equal(stored):
            return NOTHING
        # Under renamed tool ids every message counts: equal messages may use one id for two calls.
        by_part = Forgiveness.RENAMED_TOOL_IDS not in self.forgive
        renaming, forgiven, start = Renaming(self.forgive), NOTHING, 0
        for link in list(stored.links())[::-1]:
            if not (by_part and link.texts and _equal(self.flat[start : link.length], list(link.part))):
                for position, message in enumerate(link.part, start):
                    receipts = self._same(message, position, renaming)
                    if receipts is None:
                        return None
                    forgiven |= receipts
            start = link.length
        return forgiven

    def _all_equal(self, stored: Messages) -> bool:
        """Return whether the whole history is equal, in one comparison; most histories are.

        The prompt's new messages are appended to the stored ones and so compared with themselves, by
        identity. Copying the prompt without them takes longer.
        """
        if stored.mixed:
            return False
        parts = [*stored.parts(), self.flat[stored.length :]]  # joined part by part, not item by item
        return _equal(self.flat, reduce(iconcat, parts, list[Message]()))

    def _same(self, ours: dict[str, Any], position: int, renaming: Renaming) -> Forgiven | None:
        theirs = self._copy(position)
        if any(exactly(ours.get(key)) != exactly(theirs.get(key)) for key in self.further_keys):
            return None
        return same_copies(ours, theirs, renaming, one_object=not isinstance(self.flat[position], Mapping))

    def _copy(self, position: int) -> dict[str, Any]:
        """Return the prompt's message at `position` as private plain data."""
        if position not in self.copies:
            self.copies[position] = copied([self.flat[position]], "prompt", position)[0]
        return self.copies[position]


def _equal(theirs: object, ours: object) -> bool:
    """Compare with `==`. An array inside has no truth value: the careful comparison names it."""
    try:
        return bool(theirs == ours)
    except (TypeError, ValueError):
        return False


def chain_hash(messages: Messages) -> int:
    """Return the hash of all of `messages`, remembered in each link of the chain.

    The hash ignores every difference that a policy can forgive. Unequal hashes prove that two histories
    differ; equal ones prove nothing and are followed by a comparison.
    """
    missing = list(takewhile(lambda link: link.memo is None, messages.links()))
    shared = missing[-1].older if missing else messages
    known = shared.memo if shared is not None and shared.memo is not None else 0
    for link in reversed(missing):
        known = reduce(_chained, link.part, known)
        object.__setattr__(link, "memo", known)  # a cache: the value follows from the frozen fields
    return known


def _chained(known: int, message: dict[str, Any]) -> int:
    return hash((known, forgiving_hash(message)))
