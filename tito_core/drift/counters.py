"""Counters of one conversation's audit, and the turns that merging after the rollout would lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from ..errors import TemplateRefused
from ..samples.call import StoredCall
from ..samples.forest import Forest
from ..samples.trie import common_length
from .breaks import Break
from .diff import Hunk, Packed, packed
from .numbered import NumberedMedia, has_all_ranges
from .place import HunkPlace
from .predecessor import By, Predecessor
from .tally import Tally


@attrs.define
class DriftCounters:
    """Turns, ids and cache blocks of a conversation, counted while its prompts are compared.

    Attributes:
        forest: The calls of the conversation.
        predecessors: For each call the call that its prompt continues.
        block: Ids in a block of the engine's prefix cache.
        changed: For each call the ranges of ids that some rendering changes.
        broken: Names of turns with a break in their sampled ids or their close.
        restated: Names of turns that a compared prompt restates.
        counts: Counts by the names of `Tally`'s fields.
        refusal: The first prompt that was refused, and why.
    """

    forest: Forest
    predecessors: Mapping[str, Predecessor]
    block: int
    changed: dict[str, list[tuple[int, int]]] = attrs.field(factory=dict)
    broken: set[str] = attrs.field(factory=set)
    restated: set[str] = attrs.field(factory=set)
    counts: Counter[str] = attrs.field(factory=Counter)
    refusal: str = ""

    def add_restated(self, name: str) -> None:
        """Add all turns before the prompt of the call `name`, by ids or by messages."""
        waiting = [name]
        while waiting:
            current = waiting.pop()
            before = self.predecessors.get(current)
            for above in (None if before is None else before.name, self.forest[current].parent):
                if above is not None and above not in self.restated:
                    self.restated.add(above)
                    waiting.append(above)

    def add_change(self, place: HunkPlace, hunk: Hunk) -> None:
        """Add the sampled ids and the turns that a rendering changes."""
        for region in place.sampled:
            ids = max(region.start, hunk.start), min(region.stop, hunk.stop)
            self.changed.setdefault(region.call.name, []).append(ids)
            self.broken.add(region.call.name)
        if place.turn is not None:
            self.broken.add(place.turn.name)

    def add_reuse(self, earlier: StoredCall, cached: Packed, used: int, rendered: Packed) -> None:
        """Add what a prefix cache has of a prompt that continues the turn `earlier`.

        `cached` is the prompt of that turn and `rendered` the new prompt, both rendered from messages.
        `used` is how many ids the new prompt has when it is sent as ids.
        """
        known = cached + packed(earlier.step.completion_ids.tolist())
        # An engine computes at least the last id of a prompt, because it samples from there.
        reused = {
            "cached_ids": min(earlier.stop, used - 1),
            "cached_ids_by_messages": min(common_length(known, rendered), len(rendered) - 1),
        }
        self.counts["prompt_ids"] += len(rendered)
        for name, ids in reused.items():
            self.counts[name] += max(ids, 0) // self.block * self.block

    def tally(self, breaks: Sequence[Break], renderer: NumberedMedia) -> Tally:
        """Return the counts of the whole conversation, once all prompts are compared."""
        merged, kept = merged_turns(self.forest, self.predecessors, renderer)
        sizes = {call.name: call.stop - call.start for call in self.forest.calls}
        return Tally(
            conversations=1,
            drifted_conversations=int(bool(breaks)),
            calls=len(sizes),
            restated_turns=len(self.restated),
            broken_turns=len(self.broken & self.restated),
            sampled_ids=sum(sizes.values()),
            restated_ids=sum(sizes[name] for name in self.restated),
            changed_ids=sum(map(_covered, self.changed.values())),
            mergeable_ids=sum(sizes[name] for name in merged),
            ids_lost_to_merging=sum(sizes[name] for name in merged if name not in kept),
            breaks=len(breaks),
            actual_breaks=sum(one.happened for one in breaks),
            causes=dict(Counter(sorted(one.cause.name for one in breaks))),
            also=dict(Counter(sorted(cause.name for one in breaks for cause in one.also))),
            parts=dict(Counter(sorted(one.part.name for one in breaks))),
            **self.counts,
        )


def _covered(ranges: Sequence[tuple[int, int]]) -> int:
    """Return how many positions are in any of some ranges.

    >>> _covered([(3, 5), (1, 4), (7, 8)])
    5
    """
    total, reached = 0, 0
    for start, stop in sorted(ranges):
        total += max(stop - max(start, reached), 0)
        reached = max(reached, stop)
    return total


def merged_turns(
    forest: Forest, predecessors: Mapping[str, Predecessor], renderer: NumberedMedia
) -> tuple[Collection[str], Collection[str]]:
    """Return the turns of the last conversations that could be rendered, and those of them that survive.

    A trainer that merges turns after the rollout renders each conversation that no call continues. It keeps
    a turn where that rendering begins with the turn's prompt and completion ids. A turn of several
    conversations is lost only where none of them keeps it.
    """
    turns: set[str] = set()
    kept: set[str] = set()
    continued = {before.name for before in predecessors.values()}
    for last in forest.calls:
        step = last.step
        if last.name in continued or not has_all_ranges(step):
            continue
        try:
            ids = renderer.ids(step.messages, step.key, add_generation_prompt=False, ranges=step.media)
        except TemplateRefused:
            continue
        rendered = packed(ids)
        for name, survives in _survivors(forest, predecessors, last, rendered, renderer):
            turns.add(name)
            kept |= {name} if survives else set()
    return turns, kept


def _survivors(
    forest: Forest,
    predecessors: Mapping[str, Predecessor],
    last: StoredCall,
    rendered: Packed,
    renderer: NumberedMedia,
) -> Iterator[tuple[str, bool]]:
    """Yield the turns up to `last`, newest first, each with whether `rendered` begins with its ids."""
    call, length = last, common_length(renderer.used(last.ids, last.step.media), rendered)
    while True:
        if call.start < call.stop:
            yield call.name, call.stop <= length
        before = predecessors.get(call.name)
        if before is None:
            return
        call = forest[before.name].call
        # By ids the earlier turn is a prefix of the later one, so the length that agrees is known.
        if before.by is not By.IDS:
            length = common_length(renderer.used(call.ids, call.step.media), rendered)
