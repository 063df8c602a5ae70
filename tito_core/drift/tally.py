"""What audits add up to: counts and nothing else, so that adding them is commutative and associative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


def _sum(ours: Mapping[str, int], theirs: Mapping[str, int]) -> Mapping[str, int]:
    return {name: ours.get(name, 0) + theirs.get(name, 0) for name in sorted({**ours, **theirs})}


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@attrs.frozen(kw_only=True)
class Tally:
    """Counts over conversations.

    >>> one = Tally(conversations=1, drifted=1, sampled_ids=10, followed_ids=8, changed_ids=2)
    >>> both = one + Tally(conversations=1, sampled_ids=5, followed_ids=2)
    >>> both.conversations, both.by_rollout, both.by_token
    (2, 0.5, 0.2)
    """

    conversations: int = 0
    drifted: int = 0
    """Conversations with a break."""
    calls: int = 0
    compared: int = 0
    """Prompts that were rendered and compared."""
    refused: int = 0
    """Prompts that the template refuses."""
    media: int = 0
    """Prompts with images, audio or files, which are not compared."""
    wordless: int = 0
    """Prompts of which nobody stored the messages."""
    turns: int = 0
    """Turns that a later prompt restates."""
    broken_turns: int = 0
    """Those of them with a break in what was sampled or in its close."""
    sampled_ids: int = 0
    followed_ids: int = 0
    """Sampled ids of turns that a later prompt restates."""
    changed_ids: int = 0
    """Those of them that no longer stand in some later prompt rendered from messages."""
    merged_ids: int = 0
    """Sampled ids of turns whose last conversation could be rendered again as a whole."""
    lost_ids: int = 0
    """Those of them that a trainer loses which merges turns into that rendering where they are its prefix."""
    prompt_ids: int = 0
    """Ids of prompts that go on from a turn, as messages would render them."""
    cached_by_ids: int = 0
    """Prompt ids found in a prefix cache when prompts are sent as ids."""
    cached_by_messages: int = 0
    """Prompt ids found there when prompts are rendered from messages."""
    breaks: int = 0
    happened: int = 0
    """Breaks in prompts that were really sent so."""
    causes: Mapping[str, int] = attrs.field(factory=dict)
    """Breaks by the name of their cause."""
    also: Mapping[str, int] = attrs.field(factory=dict)
    """Breaks by the names of the other causes that hold."""
    parts: Mapping[str, int] = attrs.field(factory=dict)
    """Breaks by the name of the part that they begin in."""

    @property
    def by_token(self) -> float | None:
        """The share of restated sampled ids that change."""
        return _rate(self.changed_ids, self.followed_ids)

    @property
    def by_turn(self) -> float | None:
        """The share of restated turns that break."""
        return _rate(self.broken_turns, self.turns)

    @property
    def by_rollout(self) -> float | None:
        """The share of conversations that break."""
        return _rate(self.drifted, self.conversations)

    @property
    def lost(self) -> float | None:
        """The share of sampled ids that a trainer loses which merges after the fact."""
        return _rate(self.lost_ids, self.merged_ids)

    @property
    def reuse_lost(self) -> int:
        """Prompt ids that a prefix cache would have had by ids, and has not by messages."""
        return self.cached_by_ids - self.cached_by_messages

    def __add__(self, other: Tally) -> Tally:
        found: dict[str, Any] = {
            name: _sum(ours, getattr(other, name))
            if isinstance(ours, Mapping)
            else ours + getattr(other, name)
            for name, ours in attrs.asdict(self, recurse=False).items()
        }
        return Tally(**found)
