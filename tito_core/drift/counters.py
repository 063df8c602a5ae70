"""What the audit of a conversation has counted so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from ..samples.call import StoredCall
from ..samples.forest import Forest
from ..samples.predecessor import Follow
from ..samples.trie import common
from .breaks import Break
from .diff import Hunk, Packed, packed
from .merge_loss import Survival
from .place import HunkPlace
from .tally import Tally


@attrs.define
class DriftCounters:
    """Follows turns, ids and blocks."""

    forest: Forest
    follows: Mapping[str, Follow]
    block: int
    """Ids in a block of the engine's prefix cache."""
    covered: dict[str, list[tuple[int, int]]] = attrs.field(factory=dict)
    """For each call, which of its ids some rendering changes."""
    broken: set[str] = attrs.field(factory=set)
    restated: set[str] = attrs.field(factory=set)
    """The turns in prompts that were compared."""
    counts: dict[str, int] = attrs.field(factory=dict)

    def count(self, name: str, number: int = 1) -> None:
        """Count something by the name of its field in a tally."""
        self.counts[name] = self.counts.get(name, 0) + number

    def restate(self, name: str) -> None:
        """Remember the turns that a prompt goes on from, by ids or messages, and those before them."""
        waiting = [name]
        while waiting:
            one = waiting.pop()
            follow = self.follows.get(one)
            for above in (None if follow is None else follow.of, self.forest[one].parent):
                if above is not None and above not in self.restated:
                    self.restated.add(above)
                    waiting.append(above)

    def cover(self, place: HunkPlace, hunk: Hunk) -> None:
        """Remember which sampled ids and which turns a rendering changes."""
        for region in place.sampled:
            held = max(region.start, hunk.start), min(region.stop, hunk.stop)
            self.covered.setdefault(region.call.name, []).append(held)
            self.broken.add(region.call.name)
        if place.turn is not None:
            self.broken.add(place.turn.name)

    def reuse(self, earlier: StoredCall, cached: Packed, used: int, now: Packed) -> None:
        """Count what a prefix cache has of a prompt: all of the turn before, or what messages restate of it.

        `cached` is the prompt of the turn before as messages render it, `used` how many ids the prompt has.
        An engine computes at least the last id of a prompt.
        """
        known = cached + packed(earlier.step.completion_ids.tolist())
        found = {
            "cached_by_ids": min(earlier.stop, used - 1),
            "cached_by_messages": min(common(known, 0, now, 0), len(now) - 1),
        }
        self.count("prompt_ids", len(now))
        for name, ids in found.items():
            self.count(name, max(ids, 0) // self.block * self.block)

    def tally(self, breaks: Sequence[Break], found: Survival) -> Tally:
        """Return the counts of the whole conversation, once the walk is over."""
        calls = {node.name: node.call for node in self.forest.nodes}
        sizes = {name: call.stop - call.start for name, call in calls.items()}
        return Tally(
            conversations=1,
            drifted=int(bool(breaks)),
            calls=len(calls),
            turns=len(self.restated),
            broken_turns=len(self.broken & self.restated),
            sampled_ids=sum(sizes.values()),
            followed_ids=sum(sizes[name] for name in self.restated),
            changed_ids=sum(map(_union, self.covered.values())),
            merged_ids=sum(sizes[name] for name in found.sought),
            lost_ids=sum(sizes[name] for name in set(found.sought) - set(found.kept)),
            breaks=len(breaks),
            happened=sum(one.happened for one in breaks),
            causes=_named(one.cause.name for one in breaks),
            also=_named(cause.name for one in breaks for cause in one.also),
            parts=_named(one.part.name for one in breaks),
            **self.counts,
        )


def _named(names: Iterable[str]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name in sorted(names):
        found[name] = found.get(name, 0) + 1
    return found


def _union(ranges: Sequence[tuple[int, int]]) -> int:
    """Return how many places lie in any of some ranges.

    >>> _union([(3, 5), (1, 4), (7, 8)])
    5
    """
    total, reached = 0, 0
    for start, stop in sorted(ranges):
        total += max(stop - max(start, reached), 0)
        reached = max(reached, stop)
    return total
