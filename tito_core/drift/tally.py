"""Counts over audited conversations. Adding two tallies is commutative and associative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@attrs.frozen(kw_only=True)
class Tally:
    """Counts over conversations.

    Attributes:
        conversations: Conversations.
        drifted: Conversations with a break.
        calls: Model calls.
        compared: Prompts that were rendered and compared.
        refused: Prompts that the template rejects.
        media: Prompts with images, audio or files, which are not compared.
        wordless: Prompts without stored messages.
        turns: Turns that a later prompt restates.
        broken_turns: Those of `turns` with a break in their sampled ids or their close.
        sampled_ids: Sampled ids of all turns.
        followed_ids: Sampled ids of turns that a later prompt restates.
        changed_ids: Those of `followed_ids` that some later prompt, rendered from messages, does not repeat.
        merged_ids: Sampled ids of turns whose last conversation could be rendered as a whole.
        lost_ids: Those of `merged_ids` whose turn is not a prefix of that rendering. A trainer that merges
            turns after the rollout loses them.
        prompt_ids: Ids of prompts that continue a turn, as rendered from messages.
        cached_by_ids: Prompt ids found in a prefix cache when prompts are sent as ids.
        cached_by_messages: Prompt ids found there when prompts are rendered from messages.
        breaks: Breaks.
        happened: Breaks in prompts that were really sent as messages.
        causes: Breaks by the name of their cause.
        also: Breaks by the names of the other causes that hold.
        parts: Breaks by the name of the part that they begin in.
        by_token: Share of restated sampled ids that change.
        by_turn: Share of restated turns that break.
        by_rollout: Share of conversations that break.
        lost: Share of `merged_ids` that are lost.
        reuse_lost: Prompt ids that a prefix cache loses when prompts are rendered from messages.

    >>> one = Tally(conversations=1, drifted=1, sampled_ids=10, followed_ids=8, changed_ids=2)
    >>> both = one + Tally(conversations=1, sampled_ids=5, followed_ids=2)
    >>> both.conversations, both.by_rollout, both.by_token
    (2, 0.5, 0.2)
    """

    conversations: int = 0
    drifted: int = 0
    calls: int = 0
    compared: int = 0
    refused: int = 0
    media: int = 0
    wordless: int = 0
    turns: int = 0
    broken_turns: int = 0
    sampled_ids: int = 0
    followed_ids: int = 0
    changed_ids: int = 0
    merged_ids: int = 0
    lost_ids: int = 0
    prompt_ids: int = 0
    cached_by_ids: int = 0
    cached_by_messages: int = 0
    breaks: int = 0
    happened: int = 0
    causes: Mapping[str, int] = attrs.field(factory=dict)
    also: Mapping[str, int] = attrs.field(factory=dict)
    parts: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def by_token(self) -> float | None:
        """Share of restated sampled ids that change; None without any."""
        return _rate(self.changed_ids, self.followed_ids)

    @property
    def by_turn(self) -> float | None:
        """Share of restated turns that break; None without any."""
        return _rate(self.broken_turns, self.turns)

    @property
    def by_rollout(self) -> float | None:
        """Share of conversations that break; None without any."""
        return _rate(self.drifted, self.conversations)

    @property
    def lost(self) -> float | None:
        """Share of sampled ids that a trainer loses by merging turns after the rollout; None without any."""
        return _rate(self.lost_ids, self.merged_ids)

    @property
    def reuse_lost(self) -> int:
        """Prompt ids that a prefix cache would have by ids and does not have by messages."""
        return self.cached_by_ids - self.cached_by_messages

    def __add__(self, other: Tally) -> Tally:
        sums: dict[str, Any] = {
            name: dict(sorted((Counter(ours) + Counter(getattr(other, name))).items()))
            if isinstance(ours, Mapping)
            else ours + getattr(other, name)
            for name, ours in attrs.asdict(self, recurse=False).items()
        }
        return Tally(**sums)
