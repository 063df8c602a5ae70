"""How much drifts, by cause: of the ids, of the turns, of the rollouts."""

from __future__ import annotations

from collections import Counter

import attrs

from tito_core.drift.breaks import SAMPLED, Break, Cause, TurnPart
from tito_core.drift.tally import Tally

OF_TURN = SAMPLED | {TurnPart.CLOSE}
"""Parts whose breaks break the turn: what was sampled, and its close."""


@attrs.frozen(kw_only=True)
class Rate:
    """One cause's share; a place counts for its first cause."""

    cause: str
    breaks: int
    ids: int
    """Sampled ids that change."""
    by_token: float
    by_turn: float
    by_rollout: float


@attrs.define
class Rates:
    """Takes breaks in as the audit finds them; holds names of turns, not breaks."""

    breaks: Counter[Cause] = attrs.field(factory=Counter)
    ids: Counter[Cause] = attrs.field(factory=Counter)
    turns: set[tuple[Cause, str, str]] = attrs.field(factory=set)
    rollouts: set[tuple[Cause, str]] = attrs.field(factory=set)

    def add(self, one: Break) -> None:
        """Take in a break."""
        self.breaks[one.cause] += 1
        self.ids[one.cause] += one.sampled_ids
        self.rollouts.add((one.cause, one.conversation))
        if one.part in OF_TURN:
            self.turns.add((one.cause, one.conversation, one.turn))

    def of(self, tally: Tally) -> list[Rate]:
        """Return the shares of what an audit counted, by cause."""
        turns = Counter(cause for cause, *_ in self.turns)
        rollouts = Counter(cause for cause, _ in self.rollouts)
        return [
            Rate(
                cause=cause.name.lower(),
                breaks=self.breaks[cause],
                ids=self.ids[cause],
                by_token=self.ids[cause] / max(tally.followed_ids, 1),
                by_turn=turns[cause] / max(tally.turns, 1),
                by_rollout=rollouts[cause] / max(tally.conversations, 1),
            )
            for cause in Cause
            if self.breaks[cause]
        ]
