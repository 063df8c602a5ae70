"""The turn that an engine sampled in a conversation, and the ids that should follow it."""

from __future__ import annotations

import attrs

from benchmarks.templates.oracle import Truth
from benchmarks.templates.shapes import Conversation
from tito_core import OddStop, Policy, Step
from tito_io.embedded.vocabulary import vocabulary


@attrs.frozen
class Sampled:
    """A sampled turn, and what is right after it.

    Attributes:
        step: The step.
        lost: The role of a new message that the template drops; None if it drops none.
        tails: The ids that should follow the step's, any of them; none where that is unclear.
        unclear: Why it is unclear.
        unclosed: Whether no stop ends the turn in what the template writes.
    """

    step: Step
    lost: str | None = None
    tails: tuple[list[int], ...] = ()
    unclear: str = ""
    unclosed: bool = False

    def right(self, policy: Policy) -> list[list[int]]:
        """Return the ids that the next prompt may have; none where they are unclear."""
        ids = self.step.ids.tolist()
        kept = ids[:-1] if policy.odd_stop is OddStop.REPLACE else ids
        return [[*kept, *tail] for tail in self.tails]


def closes(
    conversation: Conversation, found: Truth, span: tuple[int, int] | None, close: str
) -> tuple[int, ...]:
    """Return where the close of a turn may begin that was cut, or that ended with an odd stop.

    After a plain turn that is right after its words. A call that was cut may be closed at the stop, at the
    white space before it, or with the `close` of a plain turn: which of that is the call's cannot be seen.
    """
    if span is None or not (conversation.calls and found.calls):
        return (0,)
    begin, end = span
    plain = [end - len(close)] if close and found.after[:end].endswith(close) else []
    return begin, len(found.after[:begin].rstrip()), *plain


def spelled(text: str) -> list[int]:
    """Return ids that spell a text byte by byte, as a model may sample it and no tokenizer writes it."""
    known = vocabulary()
    return [byte for index in known.spell_out(text) for byte in known.bytes_of(index)]
