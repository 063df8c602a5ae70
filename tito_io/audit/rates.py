"""The figures of an audit: their names, the rates among them, and how numbers and texts are shown.

A figure has one name everywhere: it is a field of `Tally`, a key of the summary's JSON and, with spaces, its
label in the table and on the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_core.drift.breaks import BreakText
from tito_core.drift.tally import Tally
from tito_io.pages.media import short_identity

RATES: Mapping[str, tuple[str, str]] = {
    "changed_ids": (
        "restated_ids",
        "sampled ids that a later prompt, rendered from messages, does not repeat in their place",
    ),
    "broken_turns": ("restated_turns", "turns with a break in their sampled ids or in their close"),
    "drifted_conversations": ("conversations", "conversations with at least one break"),
    "ids_lost_to_merging": (
        "mergeable_ids",
        (
            "sampled ids that a trainer loses by rendering finished conversations from messages and keeping "
            "the turns before the first difference"
        ),
    ),
    "cached_ids_lost": (
        "cached_ids",
        "prompt ids that are in the prefix cache if prompts are sent as ids, but not if sent as messages",
    ),
}
"""The names of the rates in the order in which they are shown: the count that each is a share of, and its
meaning. In the JSON the rate itself has the name with `_rate`."""
FAMILY = (
    "is this the served model's folder, and are engine (--as), tools, arguments and date those of the run?"
)
"""What to check if prompts are not the family's rendering."""
FOREIGN = "is not this model's rendering: is --family the served model?"
"""What is wrong if the first prompt has other ids altogether."""
UNSEEN = "the last turn of a finished conversation, which no later prompt restates, is rendered differently"
"""Why ids may be lost although no prompt differs."""


def words(name: str) -> str:
    """Return the label of a figure.

    >>> words("changed_ids")
    'changed ids'
    """
    return name.replace("_", " ")


@attrs.frozen
class Figure:
    """A rate.

    Attributes:
        key: Its name in `RATES`.
        part: What is counted.
        whole: Of how many.
    """

    key: str
    part: int
    whole: int

    @property
    def name(self) -> str:
        """The label."""
        return words(self.key)

    @property
    def meaning(self) -> str:
        """The meaning of the count, as a clause."""
        return RATES[self.key][1]

    @property
    def rate(self) -> float | None:
        """The share; None of nothing."""
        return self.part / self.whole if self.whole else None

    @property
    def percent(self) -> str:
        """The share in percent."""
        return share(self.rate)

    @property
    def counted(self) -> str:
        """The share in numbers, such as `2 of 8 restated ids`."""
        return f"{self.part:,} of {self.whole:,} {words(RATES[self.key][0])}"


def figures(tally: Tally) -> tuple[Figure, ...]:
    """Return the rates in the order in which they are shown; none between the ids of two models."""
    if tally.foreign_conversations:
        return ()
    return tuple(Figure(key, getattr(tally, key), getattr(tally, whole)) for key, (whole, _) in RATES.items())


def to_json(tally: Tally) -> dict[str, Any]:
    """Return all counts and rates as plain data; a rate of nothing, or between two models, is null."""
    data = attrs.asdict(tally, recurse=False)
    causes = {name: data.pop(name) for name in ("causes", "also", "parts")}
    return {
        **data,
        "cached_ids_lost": tally.cached_ids_lost,
        **{f"{key}_rate": None for key in RATES},
        **{f"{one.key}_rate": one.rate for one in figures(tally)},
        **{name: {key.lower(): number for key, number in breaks.items()} for name, breaks in causes.items()},
    }


def share(rate: float | None) -> str:
    """Return a share in percent, never 0% or 100% for a share that only rounds to it.

    >>> share(0.25), share(0.00001), share(0.99999), share(1.0), share(None)
    ('25.0%', '<0.1%', '>99.9%', '100.0%', '-')
    """
    if rate is None:
        return "-"
    if 0 < rate < 0.001:  # noqa: PLR2004  # a tenth of a percent
        return "<0.1%"
    return ">99.9%" if 0.999 < rate < 1 else f"{rate:.1%}"  # noqa: PLR2004  # likewise


def seen(text: str) -> str:
    r"""Return text with its white space made visible, and without characters that control a terminal.

    >>> seen("a b\n\tc\x1b")
    'a·b⏎→c�'
    """
    return plain(text.replace(" ", "·").replace("\n", "⏎").replace("\t", "→").replace("\r", "␍"))


def label(piece: BreakText) -> str:
    """Return the text of a token, `seen`; of a medium which one it is, its size and its place.

    >>> label(BreakText(5, "a b"))
    'a·b'
    """
    medium = piece.medium
    if medium is None:
        return seen(piece.text)
    size = f"{piece.ids:,} of {medium.length:,} ids" if piece.ids < medium.length else f"{piece.ids:,} ids"
    return f"[{medium.modality} {plain(short_identity(medium.identity))}: {size} from {medium.offset:,} on]"


def left_out(pieces: Sequence[BreakText], size: int) -> int:
    """Return how many of a side's ids some of its tokens leave out."""
    return size - sum(piece.ids for piece in pieces)


def plain(text: str) -> str:
    r"""Return text without characters that control a terminal or a page.

    >>> plain("a b\x1b[31m")
    'a b�[31m'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in text)
