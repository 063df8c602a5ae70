"""Does a step begin a prompt? A comparison that is exact, and as fast as `==` where it can be.

Most steps that do not fit differ in their last message, so that one is looked at first. Once a step has
failed later than that, the prompt's prefixes are hashed, once, and the others looked up by hash: a history
of a thousand near misses costs one pass over the prompt, not a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

from .message import Message, Messages, copied
from .normalization.canonical import normal_copy, trimmed
from .normalization.compare import Renaming, same_copies
from .normalization.receipts import Forgiveness

Forgiven = frozenset[Forgiveness]
NOTHING: Forgiven = frozenset()


class PromptMatcher:
    """A prompt, and what comparing it with one step has taught for the next."""

    def __init__(self, prompt: Sequence[Message], forgive: Forgiven) -> None:
        self.prompt = prompt
        self.forgive = forgive
        self.failed = False
        self.copies: dict[int, dict[str, Any]] = {}

    @cached_property
    def flat(self) -> list[Message]:
        """The prompt's messages, as they came."""
        return self.prompt if type(self.prompt) is list else list(self.prompt)

    @cached_property
    def hashes(self) -> list[int]:
        """The hash of each prefix of the prompt."""
        return prefix_hashes(map(self._copy, range(len(self.flat))))

    def fits(self, stored: Messages) -> Forgiven | None:
        """Return what is forgiven where `stored` begins the prompt, else None."""
        if isinstance(self.prompt, Messages) and self.prompt.extends(stored):
            return NOTHING
        if not stored or self._last_differs(stored) or self._hash_differs(stored):
            return None
        forgiven = self._compare(stored)
        self.failed = self.failed or forgiven is None
        return forgiven

    def _last_differs(self, stored: Messages) -> bool:
        """Look at the last message alone: that is where most steps differ."""
        last = stored.length - 1
        if stored.texts and stored.part and _alike(self.flat[last], stored.part[-1]):
            return False
        return self._same(stored[last], last, Renaming(self.forgive)) is None

    def _hash_differs(self, stored: Messages) -> bool:
        return self.failed and chain_hash(stored) != self.hashes[stored.length]

    def _compare(self, stored: Messages) -> Forgiven | None:
        """Compare part by part, each at the speed of `==` where that is exact."""
        if self._all_equal(stored):
            return NOTHING
        renaming, forgiven, start = Renaming(self.forgive), NOTHING, 0
        for link in list(stored.links())[::-1]:
            if not self._equal(link, start):
                found = self._compare_each(link.part, start, renaming)
                if found is None:
                    return None
                forgiven |= found
            start = link.length
        return forgiven

    def _all_equal(self, stored: Messages) -> bool:
        """Tell whether all parts are equal as they stand, in one comparison; most histories are.

        What comes after them is compared with itself, which takes no time; to cut it off would.
        """
        if stored.mixed:
            return False
        after = self.flat[stored.length :]
        return _alike(self.flat, [*chain.from_iterable(stored.parts()), *after])

    def _equal(self, link: Messages, start: int) -> bool:
        """Tell whether a whole part is equal as it stands; renamings must see every message."""
        if not link.texts or Forgiveness.RENAMED_TOOL_IDS in self.forgive:
            return False
        return _alike(self.flat[start : link.length], list(link.part))

    def _compare_each(
        self, part: Sequence[dict[str, Any]], start: int, renaming: Renaming
    ) -> Forgiven | None:
        forgiven = NOTHING
        for position, message in enumerate(part, start):
            found = self._same(message, position, renaming)
            if found is None:
                return None
            forgiven |= found
        return forgiven

    def _same(self, ours: dict[str, Any], position: int, renaming: Renaming) -> Forgiven | None:
        found = same_copies(ours, self._copy(position), renaming)
        foreign = found is not None and type(self.flat[position]) is not dict
        return found | {Forgiveness.OBJECT} if found is not None and foreign else found

    def _copy(self, position: int) -> dict[str, Any]:
        """Return the prompt's message at `position` as private plain data."""
        if position not in self.copies:
            self.copies[position] = copied([self.flat[position]], "prompt", position)[0]
        return self.copies[position]


def _alike(theirs: object, ours: object) -> bool:
    """Compare as `==` does; what has none, such as an array, is looked at piece by piece, and named."""
    try:
        return bool(theirs == ours)
    except (TypeError, ValueError):
        return False


EMPTY = 0


def prefix_hashes(messages: Iterable[dict[str, Any]]) -> list[int]:
    """Return the hash of every prefix of `messages`, the empty one first."""
    return list(accumulate(map(_loose, messages), _fold, initial=EMPTY))


def chain_hash(messages: Messages) -> int:
    """Return the hash of all of `messages`, remembered along the chain that they share."""
    missing: list[Messages] = []
    for link in messages.links():
        if link.memo is not None:
            break
        missing.append(link)
    shared = missing[-1].older if missing else messages
    known = shared.memo if shared is not None and shared.memo is not None else EMPTY
    for link in reversed(missing):
        for message in link.part:
            known = _fold(known, _loose(message))
        object.__setattr__(link, "memo", known)  # nobody can tell: it says what could be told before
    return known


def _fold(known: int, added: int) -> int:
    return hash((known, added))


def _loose(message: dict[str, Any]) -> int:
    form = normal_copy(message)
    calls = tuple((call.name, call.arguments) for call in form.tool_calls)
    reasoning = None if form.role == "assistant" else form.reasoning
    return hash((form.role, trimmed(form), reasoning, calls, form.name))
