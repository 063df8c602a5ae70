"""A prefix cache that caches nothing but the fact: which blocks of ids were seen after which.

It answers the one question that a client sees the answer to: how many of a prompt's ids would not have had to
be computed again.
"""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 16
"""Ids in a block; only whole blocks are shared."""
BLOCKS = 65_536
"""How many are remembered, about a million ids; the oldest go first."""


class PrefixCache:
    """Blocks by the chain of blocks before them; it changes as prompts and replies come by."""

    def __init__(self) -> None:
        """Begin empty."""
        self._blocks: dict[int, None] = {}

    def cached(self, prompt: Sequence[int]) -> int:
        """Return how many ids at the beginning of `prompt` are known; the last id never is.

        >>> cache = PrefixCache()
        >>> cache.keep(range(40))
        >>> [cache.cached(ids) for ids in (range(40), range(33), range(32), [1] * 40)]
        [32, 32, 16, 0]
        """
        known = 0
        for block in _chain(prompt[: max(len(prompt) - 1, 0)]):
            if block not in self._blocks:
                break
            known += BLOCK
        return known

    def keep(self, ids: Sequence[int]) -> None:
        """Remember the blocks of a prompt and its reply."""
        for block in _chain(ids):
            self._blocks.pop(block, None)
            self._blocks[block] = None
        while len(self._blocks) > BLOCKS:
            del self._blocks[next(iter(self._blocks))]


def _chain(ids: Sequence[int]) -> list[int]:
    """Return a hash for every whole block, each of them depending on all before it."""
    found: list[int] = []
    state = 0
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        state = hash((state, *ids[start : start + BLOCK]))
        found.append(state)
    return found
