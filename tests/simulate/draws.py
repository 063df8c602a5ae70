"""Seeded draws: everything that a simulation decides at random comes from here."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

import attrs

T = TypeVar("T")


@attrs.define
class Draws:
    """Random choices that follow from a seed alone.

    >>> [Draws(7).below(100), Draws(7).below(100)] == [Draws(7).below(100)] * 2
    True
    """

    seed: int
    _random: Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311  # a repeatable order of events, not a secret

    def chance(self, share: float) -> bool:
        """Return whether something happens that happens in this share of cases."""
        return self._random.random() < share

    def below(self, end: int) -> int:
        """Return a whole number from 0 on, below `end`."""
        return int(self._random.random() * end)

    def between(self, low: float, high: float) -> float:
        """Return a number of seconds, most often a short one."""
        return low + (high - low) * self._random.random() ** 3

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[self.below(len(values))]

    def token(self, count: int) -> bytes:
        """Return so many bytes."""
        return bytes(self.below(256) for _ in range(count))
