"""The share of killed mutants, with its confidence interval, and those that are no faults."""

from __future__ import annotations

import tomllib
from math import sqrt
from pathlib import Path

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
NORMAL = 1.96
"""Standard deviations of a normal distribution on either side of its mean that hold 95 % of it."""


def wilson(killed: int, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, as Wilson has it: it is right near 1, too.

    >>> [round(bound, 3) for bound in wilson(95, 100)]
    [0.888, 0.978]
    """
    share, weight = killed / count, NORMAL**2 / count
    middle = (share + weight / 2) / (1 + weight)
    half = NORMAL / (1 + weight) * sqrt(share * (1 - share) / count + weight / (4 * count))
    return middle - half, middle + half


def equivalent() -> dict[tuple[str, str], str]:
    """Return why some mutants are no faults, by their files and changes: each was judged by a person."""
    entries = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {(one["file"], one["change"].strip()): one["why"] for one in entries}
