"""Choices out of bytes: hypothesis draws and shrinks them, a long run takes them from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tito_core.testing.strategies.choices import Choices

T = TypeVar("T")
SIZE = 400
"""Bytes of a case. Where they are used up, the first and simplest option is taken."""


class Picks(Choices):
    """A sequence of choices, one byte each. The byte 0 chooses the first option, which is the simplest one.

    >>> picks = Picks(bytes((1, 0, 5)))
    >>> picks.pick("abc"), picks.pick("abc"), picks.pick("abc"), picks.pick("abc")
    ('b', 'a', 'c', 'a')
    """

    def __init__(self, data: bytes) -> None:
        """Start with the bytes of a case."""
        self._data, self._place = data, 0

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        byte = self._data[self._place] if self._place < len(self._data) else 0
        self._place += 1
        return options[byte % len(options)]
