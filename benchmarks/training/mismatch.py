"""How far the trainer is from the sampler on the ids that train, in plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import attrs

LARGEST = 30.0
"""A difference of logarithms is cut here before it is exponentiated, as trainers do."""


@attrs.frozen(kw_only=True)
class Mismatch:
    """Estimates of the divergence of the trainer from the sampler, over ids that the sampler wrote.

    Attributes:
        k1: Mean of `old - new`, unbiased and noisy.
        k3: Mean of `exp(new - old) - 1 - (new - old)`, never below 0.
        ratio_mean: Mean of `exp(new - old)`.
        ratio_max: The largest of them.
    """

    k1: float
    k3: float
    ratio_mean: float
    ratio_max: float

    @classmethod
    def of(cls, new: Sequence[float], old: Sequence[float]) -> Mismatch:
        """Compare log-probabilities, one for each id.

        >>> Mismatch.of([-1.0, -2.0], [-1.0, -2.0])
        Mismatch(k1=0.0, k3=0.0, ratio_mean=1.0, ratio_max=1.0)
        >>> round(Mismatch.of([-0.5], [-1.0]).ratio_max, 3)
        1.649
        """
        gaps = [max(-LARGEST, min(LARGEST, one - other)) for one, other in zip(new, old, strict=True)]
        if not gaps:
            return cls(k1=0.0, k3=0.0, ratio_mean=1.0, ratio_max=1.0)
        ratios = [exp(gap) for gap in gaps]
        return cls(
            k1=sum(-gap for gap in gaps) / len(gaps),
            k3=sum(ratio - 1 - gap for ratio, gap in zip(ratios, gaps, strict=True)) / len(gaps),
            ratio_mean=sum(ratios) / len(ratios),
            ratio_max=max(ratios),
        )
