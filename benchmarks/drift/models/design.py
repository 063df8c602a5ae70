"""Which conversations are run: the grid of settings, and what alternates inside of its cells."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Self

import attrs

from .scripts import LANGUAGES

TEMPERATURES = (0.0, 0.7, 1.0)
ENOUGH, FEW = 64, 16
"""Most ids of a turn, in conversations whose turns may end and in those whose turns are cut."""


@attrs.frozen(order=True)
class Plan:
    """One conversation that is to be run.

    Attributes:
        temperature: Sampling temperature.
        language: `english`, `code` or `other`, which is neither English nor ASCII.
        tools: Whether tools are offered.
        limit: Most ids of a turn.
        number: Number of the conversation in its cell, which decides what the user says.
    """

    temperature: float
    language: str
    tools: bool
    limit: int
    number: int

    @property
    def name(self) -> str:
        """Name of the conversation, from which `parse` reads the plan.

        >>> Plan(0.7, "code", tools=True, limit=16, number=3).name
        '0.7 code tools 16 00003'
        """
        offered = "tools" if self.tools else "plain"
        return f"{self.temperature} {self.language} {offered} {self.limit} {self.number:05}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the plan of a name; raises `ValueError` for another name.

        >>> Plan.parse("0.7 code tools 16 00003").number
        3
        """
        temperature, language, offered, limit, number = name.split(" ")
        return cls(float(temperature), language, offered == "tools", int(limit), int(number))

    def path(self, folder: Path) -> Path:
        """Return the file of the finished conversation."""
        return folder / f"{self.name.replace(' ', '-')}.jsonl"


def plans(conversations: int, *, tools: bool) -> Iterator[Plan]:
    """Yield so many conversations for each temperature and language, all cells in turn.

    So a run that ends early has as many of each. Tools alternate from one conversation to the next, limits
    from each second one to the next; without `tools` they are never offered.

    >>> first = [one for one in plans(4, tools=True) if one.language == "code" and one.temperature == 0.7]
    >>> [(one.tools, one.limit) for one in first]
    [(False, 64), (True, 64), (False, 16), (True, 16)]
    """
    for number in range(conversations):
        limit = FEW if number // 2 % 2 else ENOUGH
        for temperature, language in product(TEMPERATURES, LANGUAGES):
            yield Plan(temperature, language, tools and number % 2 == 1, limit, number)
