"""The rates of an audit, each with what it is a share of: the table and the page show the same."""

from __future__ import annotations

import attrs

from tito_core.drift.tally import Tally

FAMILY = (
    "is this the folder of the model that was served, and are tools, arguments and date those of the run?"
)
"""What to ask where prompts are not the family's rendering."""
UNSEEN = "a finished conversation, whose last turn no later prompt restates, is not written as it was sampled"
"""Why ids may be lost where no prompt differs."""


@attrs.frozen
class Figure:
    """A share, in words."""

    name: str
    """What is counted."""
    meaning: str
    """What that is, in a clause."""
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
    """Return the rates in the order in which they, and their legends in `--help`, are shown."""
    return (
        Figure(
            "sampled ids change",
            "those that some later prompt, rendered from messages, no longer has where they were",
            tally.changed_ids,
            tally.followed_ids,
            "restated sampled id",
        ),
        Figure(
            "turns break",
            "those that have a break in what was sampled or in its close",
            tally.broken_turns,
            tally.turns,
            "restated turn",
        ),
        Figure(
            "conversations drift",
            "those that have at least one break",
            tally.drifted,
            tally.conversations,
            "conversation",
        ),
        Figure(
            "lost to merging",
            "those that a trainer loses who renders each finished conversation from messages and keeps the "
            "turns that stand unchanged at its beginning, last turns too",
            tally.lost_ids,
            tally.merged_ids,
            "sampled id",
        ),
        Figure(
            "prefix cache lost",
            "those that the engine's prefix cache has where prompts are sent as ids, and not where they are "
            "sent as messages",
            tally.reuse_lost,
            tally.cached_by_ids,
            "cached prompt id",
        ),
    )


def count(number: int, noun: str) -> str:
    """Return a number of things.

    >>> count(1, "break"), count(2000, "break")
    ('1 break', '2,000 breaks')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def share(rate: float | None) -> str:
    """Return a share in percent, never 0% or 100% for what only rounds to it.

    >>> share(0.25), share(0.00001), share(0.99999), share(1.0), share(None)
    ('25.0%', '<0.1%', '>99.9%', '100.0%', '-')
    """
    if rate is None:
        return "-"
    if 0 < rate < 0.001:  # noqa: PLR2004  # a tenth of a percent
        return "<0.1%"
    return ">99.9%" if 0.999 < rate < 1 else f"{rate:.1%}"  # noqa: PLR2004  # likewise


def seen(text: str) -> str:
    r"""Return text with its white space made visible, and nothing that a terminal or a page would obey.

    >>> seen("a b\n\tc\x1b")
    'a·b⏎→c�'
    """
    return plain(text.replace(" ", "·").replace("\n", "⏎").replace("\t", "→").replace("\r", "␍"))


def plain(text: str) -> str:
    r"""Return text with nothing in it that a terminal or a page would obey.

    >>> plain("a b\x1b[31m")
    'a b�[31m'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in text)
