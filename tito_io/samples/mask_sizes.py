"""Count the ids that the sampling masks of calls keep, for the summary of `tito samples`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil
from typing import Self

import attrs

from tito_core.samples import StoredCall


@attrs.frozen
class MaskSizes:
    """How many ids are kept for each sampled id; true where any has a mask.

    Attributes:
        counts: The number of sampled ids by the size of their masks, 0 for those without a mask.
    """

    counts: Counter[int] = attrs.field(factory=Counter)

    @classmethod
    def of(cls, calls: Iterable[StoredCall]) -> Self:
        """Count the masks of calls, each once."""
        counts = Counter[int]()
        for call in calls:
            mask = call.step.sampling_mask
            counts.update({0: call.stop - call.start} if mask is None else mask.counts)
        return cls(counts)

    @property
    def masked_ids(self) -> int:
        """The number of sampled ids that have a mask."""
        return self.counts.total() - self.counts[0]

    def figures(self) -> dict[str, float]:
        """Return mean, median and 99th percentile of the kept ids, and the share of masks of one id.

        All are over the ids that have a mask. A percentile is a size that occurs (nearest rank).

        >>> MaskSizes(Counter({0: 5, 1: 2, 7: 2})).figures()
        {'masked_ids': 4, 'mean': 4.0, 'median': 1, 'p99': 7, 'singletons': 0.5, 'without_mask': 5}
        """
        ids = self.masked_ids
        return {
            "masked_ids": ids,
            "mean": sum(size * count for size, count in self.counts.items()) / ids,
            "median": self._percentile(50),
            "p99": self._percentile(99),
            "singletons": self.counts[1] / ids,
            "without_mask": self.counts[0],
        }

    def lines(self) -> list[tuple[str, str, str]]:
        """Return name, text and explanation of each figure but the first."""
        found = self.figures()
        return [
            ("mean", f"{found['mean']:,.1f}", "kept ids for a sampled one"),
            ("median", f"{found['median']:,}", ""),
            ("p99", f"{found['p99']:,}", ""),
            ("singletons", f"{found['singletons']:.1%}", "only the sampled id was kept"),
            ("without mask", f"{found['without_mask']:,}", "sampled ids"),
        ]

    def _percentile(self, share: int) -> int:
        left = ceil(share * self.masked_ids / 100)
        sizes = sorted((size, count) for size, count in self.counts.items() if size)
        return next(size for size, count in sizes if (left := left - count) <= 0)

    def __add__(self, other: MaskSizes) -> MaskSizes:
        return MaskSizes(self.counts + other.counts)

    def __bool__(self) -> bool:
        return self.masked_ids > 0
