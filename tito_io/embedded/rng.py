"""Seeded draws: the only randomness in this package, and it is none.

Everything drawn follows from the parts a `Dice` is made of, on any machine and in any process.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import TypeVar

T = TypeVar("T")


def digest(*parts: bytes | str | int) -> int:
    """Return 64 bits that depend on every part and on where one part ends.

    >>> digest(1, "a") == digest(1, "a"), digest("1", "a") == digest("1a")
    (True, False)
    """
    state = blake2b(digest_size=8)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return int.from_bytes(state.digest(), "little")


class Dice:
    """A stream of draws; only `Random.random` is used, whose sequence Python promises to keep."""

    def __init__(self, *parts: bytes | str | int) -> None:
        """Fix every later draw by `parts`."""
        self._random = Random(digest(*parts))  # noqa: S311  # a repeatable sampler, not a secret

    def chance(self, rate: float) -> bool:
        """Return True in `rate` of all draws: never for 0, always for 1."""
        return self._random.random() < rate

    def between(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """Return one of `items`, which must not be empty."""
        return items[self.between(0, len(items) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return all of `items` in another order."""
        rest = list(items)
        return [rest.pop(self.between(0, len(rest) - 1)) for _ in items]
