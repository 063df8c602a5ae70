"""A break: a place where a prompt rendered from messages does not restate the ids that were there.

One value a place. What stood there is `used`, what the rendering has is `rendered`; `cause` is the first, in
the order of `Cause`, of the causes that hold, `also` has the others.
"""

from __future__ import annotations

from enum import Enum

import attrs


class Cause(Enum):
    """Why ids differ, in the order in which a cause is named first."""

    RENDERING = "the prompt in use is not this family's rendering: another template, date, tools or arguments"
    TOOLS = "tools or template arguments changed between the turns"
    EDITED = "the messages themselves changed between the turns: the harness edited history"
    TRUNCATED = "a turn that was cut short got a close that it never sampled"
    SEAM = "the close, or the stop, is not what was sampled"
    THINKING = "the template drops thinking, or marks of it, that the message still has"
    WHITESPACE = "white space differs, and nothing else"
    PARSE = "the message does not say what was sampled: the parse of calls, reasoning or text lost it"
    REWRITTEN = "the template writes history otherwise than what was sampled or sent"
    RETOKENIZED = "the same text, other ids"
    UNKNOWN = "no rule tells"


class TurnPart(Enum):
    """Where a break begins."""

    PROMPT = "the first prompt"
    OPENER = "a turn's generation prompt"
    REASONING = "a turn's reasoning"
    CONTENT = "a turn's content"
    CALLS = "a turn's tool calls"
    CLOSE = "a turn's stop and close"
    ENVIRONMENT = "what was said between two turns"


SAMPLED = frozenset((TurnPart.REASONING, TurnPart.CONTENT, TurnPart.CALLS))
"""The parts that a model writes."""


@attrs.frozen
class BreakText:
    """A token and what it prints."""

    id: int
    text: str


@attrs.frozen(kw_only=True)
class Break:
    """One place where ids differ."""

    conversation: str
    call: str
    """The call whose prompt, rendered from messages, shows it first."""
    order: int
    """That call's order."""
    turn: str
    """The call that the place belongs to: its completion where any sampled id is in it, else its prompt."""
    part: TurnPart
    cause: Cause
    also: tuple[Cause, ...] = ()
    detail: str = ""
    """What was found, in words."""
    happened: bool
    """Whether the engine was really sent the other ids, or would have been by messages."""
    at: int
    """How many ids of the history in use stand before."""
    used_ids: int
    rendered_ids: int
    sampled_ids: int
    """How many of the ids that change were sampled."""
    used: tuple[BreakText, ...]
    """What stood there, cut at `SHOWN` tokens; empty where the rendering inserts."""
    rendered: tuple[BreakText, ...]
    """What the rendering has there, cut likewise."""
    before: str
    """Text before it, the same on both sides."""
    used_after: str
    rendered_after: str
    """Text after it, on each side."""

    @property
    def key(self) -> tuple[str, int, str, int, int]:
        """What breaks are ordered by; no two of a run have the same."""
        return self.conversation, self.order, self.call, self.at, self.used_ids


SHOWN = 48
"""Tokens of a side that a break holds."""
EITHER_SIDE = 12
"""Tokens of context."""
