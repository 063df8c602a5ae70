"""Make many small choices from one drawn number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
Draw = Callable[[SearchStrategy[Any]], Any]
"""The draw function of a composite strategy, or `data.draw`."""


class Choices:
    """A sequence of small choices, decoded from one drawn number, because each draw is expensive.

    The first option is the simplest one. The number 0 chooses it everywhere.

    >>> choices = Choices(7)
    >>> choices.pick("abc"), choices.pick("abc"), choices.pick("abc")
    ('b', 'c', 'a')
    """

    FACES = 2**24 - 1

    def __init__(self, number: int) -> None:
        """Start with a drawn number."""
        self._left = number

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        self._left, chosen = divmod(self._left, len(options))
        return options[chosen]

    def once_in(self, chance: int) -> bool:
        """Return True once in `chance` times."""
        return self.pick(range(chance)) == chance - 1

    def turned(self, items: Sequence[T]) -> list[T]:
        """Return the items in another cyclic order."""
        start = self.pick(range(max(len(items), 1)))
        return [*items[start:], *items[:start]]


CHOICES: SearchStrategy[Choices] = st.integers(0, Choices.FACES).map(Choices)
"""One strategy object for all: building strategies costs more than drawing from them."""
