"""Breaks: places where a prompt rendered from messages differs from the ids that were used.

Each place is one value. `used` are the ids that were there, `rendered` those that the rendering has instead.
`cause` is the first cause that holds, in the order of `Cause`; `also` has the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import chain, zip_longest
from operator import attrgetter

import attrs

from ..media.ranges import MediaRange


class Cause(Enum):
    """Why ids differ. Where several causes hold, the first in this order is named first."""

    MEDIA = "an image, or another medium, differs: another one, another number of ids, or another place"
    RENDERING = "the prompt in use is not this family's rendering: another template, date, tools or arguments"
    TOOLS = "tools or template arguments changed between the turns"
    EDITED = "the messages themselves changed between the turns: the harness edited history"
    TRUNCATED = "a turn that was cut short got a close that it never sampled"
    SEAM = "the close, or the stop, is not what was sampled"
    THINKING = "the template drops reasoning, or its marks, that the message still has"
    WHITESPACE = "only white space differs"
    PARSE = "parsing lost part of what was sampled: tool calls, reasoning or text"
    REWRITTEN = "the template writes history differently from what was sampled or sent"
    RETOKENIZED = "the same text, other ids"
    UNKNOWN = "no rule applies"


class TurnPart(Enum):
    """The part of a turn in which a break begins."""

    PROMPT = "the first prompt"
    OPENER = "a turn's generation prompt"
    REASONING = "a turn's reasoning"
    CONTENT = "a turn's content"
    CALLS = "a turn's tool calls"
    CLOSE = "a turn's stop and close"
    ENVIRONMENT = "messages between two turns"


SAMPLED = frozenset((TurnPart.REASONING, TurnPart.CONTENT, TurnPart.CALLS))
"""The parts that a model samples."""
MAX_TOKENS = 48
"""Tokens that a break lists for each side."""
CONTEXT = 12
"""Tokens whose text a break shows before and after."""


@attrs.frozen
class BreakText:
    """A token and its text, or a medium in place of its ids.

    Attributes:
        id: The token id; of a medium the first id of its placeholder.
        text: What it decodes to alone; the modality of a medium in brackets.
        ids: How many ids it stands for.
        medium: The medium, with its place in the ids of this side and all of its ids; None for a token.
    """

    id: int
    text: str
    ids: int = 1
    medium: MediaRange | None = None


@attrs.frozen(kw_only=True)
class Break:
    """One place where the rendered ids differ from the used ones.

    Attributes:
        conversation: Name of the conversation.
        call: Name of the first call whose prompt, rendered from messages, shows the difference.
        order: That call's order.
        turn: Name of the call that the place belongs to. If any id in it was sampled, the call that
            sampled it; else the call whose prompt has it.
        part: Where in the turn the place begins.
        cause: The first cause that holds.
        also: The other causes that hold.
        detail: What was found, in words.
        happened: Whether the engine really got the rendered ids. If not, it would have got them by messages.
        at: Number of used ids before the place.
        used_ids: Number of used ids that the rendering lacks.
        rendered_ids: Number of ids that the rendering has instead.
        sampled_ids: How many of the used ids were sampled.
        used: The first used tokens, at most `MAX_TOKENS`; empty where the rendering only inserts.
        rendered: The first rendered tokens, at most `MAX_TOKENS`.
        before: Text before the place, the same on both sides.
        used_after: Text after the place in the used ids.
        rendered_after: Text after the place in the rendering.
    """

    conversation: str
    call: str
    order: int
    turn: str
    part: TurnPart
    cause: Cause
    also: tuple[Cause, ...] = ()
    detail: str = ""
    happened: bool
    at: int
    used_ids: int
    rendered_ids: int
    sampled_ids: int
    used: tuple[BreakText, ...]
    rendered: tuple[BreakText, ...]
    before: str
    used_after: str
    rendered_after: str

    @property
    def key(self) -> tuple[str, int, str, int, int]:
        """Sort key, unique in a run."""
        return self.conversation, self.order, self.call, self.at, self.used_ids


@attrs.frozen
class BreakSelection:
    """A few breaks to show of many: of each cause those with the smallest keys.

    Adding is commutative and associative: the selection of two runs is the sum of their selections.

    Attributes:
        most: The most breaks of each cause, and to show in all.
        by_cause: The selected breaks of each cause, sorted by key.
    """

    most: int
    by_cause: Mapping[Cause, tuple[Break, ...]] = attrs.field(factory=dict)

    def with_breaks(self, breaks: Iterable[Break]) -> BreakSelection:
        """Return the selection from these breaks and `breaks`."""
        grouped = {cause: list(selected) for cause, selected in self.by_cause.items()}
        for one in breaks:
            grouped.setdefault(one.cause, []).append(one)
        by_cause = {
            cause: tuple(sorted(grouped[cause], key=attrgetter("key"))[: self.most])
            for cause in Cause
            if self.most and cause in grouped
        }
        return BreakSelection(self.most, by_cause)

    def __add__(self, other: BreakSelection) -> BreakSelection:
        most = min(self.most, other.most)
        return BreakSelection(most, self.by_cause).with_breaks(chain(*other.by_cause.values()))

    @property
    def shown(self) -> tuple[Break, ...]:
        """At most `most` breaks, by cause: one of each cause first, then a second of each, and so on."""
        rounds = zip_longest(*(self.by_cause[cause] for cause in Cause if cause in self.by_cause))
        chosen = [one for each in rounds for one in each if one is not None][: self.most]
        ranks = {cause: rank for rank, cause in enumerate(Cause)}
        return tuple(sorted(chosen, key=lambda one: (ranks[one.cause], one.key)))
