"""Confidence intervals of shares."""

from __future__ import annotations

from math import sqrt

NORMAL = 1.96
"""Standard deviations of a normal distribution on either side of its mean that hold 95 % of it."""


def wilson(found: int, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, as Wilson has it: it is right near 0 and 1, too.

    >>> [round(bound, 3) for bound in wilson(95, 100)]
    [0.888, 0.978]
    >>> wilson(0, 0)
    (0.0, 1.0)
    """
    if not count:
        return 0.0, 1.0
    share, weight = found / count, NORMAL**2 / count
    middle = (share + weight / 2) / (1 + weight)
    half = NORMAL / (1 + weight) * sqrt(share * (1 - share) / count + weight / (4 * count))
    return max(middle - half, 0.0), min(middle + half, 1.0)
