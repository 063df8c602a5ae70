"""Counts over audited conversations. Adding two tallies is commutative and associative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Tally:
    """Counts over conversations.

    Attributes:
        conversations: Conversations.
        drifted_conversations: Conversations with a break.
        foreign_conversations: Conversations with a first prompt that shares less than half of its ids with
            its rendering, as if they came from another model.
        calls: Model calls.
        compared_prompts: Prompts that were rendered and compared.
        refused_prompts: Prompts that the template rejects.
        prompts_with_media: Prompts that are not compared, because it is unknown where an image or another
            medium stands in their ids, or in those of the turn before.
        prompts_without_messages: Prompts without stored messages.
        restated_turns: Turns that a later prompt restates.
        broken_turns: Those of `restated_turns` with a break in their sampled ids or their close.
        sampled_ids: Sampled ids of all turns.
        restated_ids: Sampled ids of turns that a later prompt restates.
        changed_ids: Those of `restated_ids` that some later prompt, rendered from messages, does not repeat.
        mergeable_ids: Sampled ids of turns whose last conversation could be rendered as a whole.
        ids_lost_to_merging: Those of `mergeable_ids` whose turn is not a prefix of that rendering. A trainer
            that merges turns after the rollout loses them.
        prompt_ids: Ids of prompts that continue a turn, as rendered from messages.
        cached_ids: Prompt ids found in a prefix cache when prompts are sent as ids.
        cached_ids_by_messages: Prompt ids found there when prompts are rendered from messages.
        breaks: Breaks.
        actual_breaks: Breaks in prompts that were really sent as messages.
        causes: Breaks by the name of their cause.
        also: Breaks by the names of the other causes that hold.
        parts: Breaks by the name of the part that they begin in.
        cached_ids_lost: Prompt ids that a prefix cache loses when prompts are rendered from messages.

    >>> one = Tally(conversations=1, drifted_conversations=1, sampled_ids=10, restated_ids=8, changed_ids=2)
    >>> both = one + Tally(conversations=1, sampled_ids=5, restated_ids=2)
    >>> both.conversations, both.restated_ids, both.changed_ids
    (2, 10, 2)
    """

    conversations: int = 0
    drifted_conversations: int = 0
    foreign_conversations: int = 0
    calls: int = 0
    compared_prompts: int = 0
    refused_prompts: int = 0
    prompts_with_media: int = 0
    prompts_without_messages: int = 0
    restated_turns: int = 0
    broken_turns: int = 0
    sampled_ids: int = 0
    restated_ids: int = 0
    changed_ids: int = 0
    mergeable_ids: int = 0
    ids_lost_to_merging: int = 0
    prompt_ids: int = 0
    cached_ids: int = 0
    cached_ids_by_messages: int = 0
    breaks: int = 0
    actual_breaks: int = 0
    causes: Mapping[str, int] = attrs.field(factory=dict)
    also: Mapping[str, int] = attrs.field(factory=dict)
    parts: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def cached_ids_lost(self) -> int:
        """Prompt ids that a prefix cache would have by ids and does not have by messages."""
        return self.cached_ids - self.cached_ids_by_messages

    def __add__(self, other: Tally) -> Tally:
        sums: dict[str, Any] = {
            name: dict(sorted((Counter(ours) + Counter(getattr(other, name))).items()))
            if isinstance(ours, Mapping)
            else ours + getattr(other, name)
            for name, ours in attrs.asdict(self, recurse=False).items()
        }
        return Tally(**sums)
