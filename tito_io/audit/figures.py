"""The rates of an audit, each with what it is a share of: the table and the page show the same."""

from __future__ import annotations

import attrs

from tito_core.tally import Tally

from .words import count, share

FAMILY = (
    "is this the folder of the model that was served, and are tools, arguments and date those of the run?"
)
"""What to ask where prompts are not the family's rendering."""


@attrs.frozen
class Figure:
    """A share, in words."""

    name: str
    """What is counted."""
    meaning: str
    """What that is, in a sentence."""
    part: int
    whole: int
    noun: str

    @property
    def rate(self) -> float | None:
        """The share."""
        return self.part / self.whole if self.whole else None

    @property
    def percent(self) -> str:
        """The share in percent."""
        return share(self.rate)

    @property
    def counted(self) -> str:
        """The share in numbers."""
        return f"{self.part:,} of {count(self.whole, self.noun)}"


def figures(tally: Tally) -> tuple[Figure, ...]:
    """Return the rates in the order in which they are shown."""
    return (
        Figure(
            "sampled ids change",
            "of the sampled ids that a later prompt restates",
            tally.changed_ids,
            tally.followed_ids,
            "id",
        ),
        Figure(
            "turns break",
            "of the turns that a later prompt restates",
            tally.broken_turns,
            tally.turns,
            "turn",
        ),
        Figure(
            "conversations drift",
            "have at least one break",
            tally.drifted,
            tally.conversations,
            "conversation",
        ),
        Figure(
            "sampled ids lost",
            "to a trainer that renders the last conversation again and merges what survives as its prefix",
            tally.lost_ids,
            tally.merged_ids,
            "id",
        ),
        Figure(
            "prefix cache lost",
            "of the prompt ids that the engine's prefix cache would have had by ids",
            tally.reuse_lost,
            tally.cached_by_ids,
            "id",
        ),
    )
