"""Which breaks to show, when there are more than anybody reads: the first of each cause, in turns.

What is kept of two runs is what would have been kept of both: adding is commutative and associative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest
from operator import attrgetter

import attrs

from .breaks import Break, Cause


@attrs.frozen
class BreakSelection:
    """At most `most` breaks of each cause, those with the smallest keys."""

    most: int
    kept: Mapping[Cause, tuple[Break, ...]] = attrs.field(factory=dict)

    def with_breaks(self, breaks: Iterable[Break]) -> BreakSelection:
        """Return the choice from these and more."""
        found = {cause: list(kept) for cause, kept in self.kept.items()}
        for one in breaks:
            found.setdefault(one.cause, []).append(one)
        cut = {cause: _first(found[cause], self.most) for cause in Cause if self.most and cause in found}
        return BreakSelection(self.most, cut)

    def __add__(self, other: BreakSelection) -> BreakSelection:
        return BreakSelection(min(self.most, other.most), self.kept).with_breaks(chain(*other.kept.values()))

    @property
    def shown(self) -> tuple[Break, ...]:
        """At most `most` breaks: the first of each cause, then the second of each, and so on; by cause."""
        rounds = zip_longest(*(self.kept[cause] for cause in Cause if cause in self.kept))
        chosen = [one for each in rounds for one in each if one is not None][: self.most]
        ranks = {cause: rank for rank, cause in enumerate(Cause)}
        return tuple(sorted(chosen, key=lambda one: (ranks[one.cause], one.key)))


def _first(breaks: list[Break], most: int) -> tuple[Break, ...]:
    return tuple(sorted(breaks, key=attrgetter("key"))[:most])
