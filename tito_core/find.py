"""Which step does a prompt continue? The one with the longest proper message prefix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from .match import NOTHING, Forgiven, Wanted
from .message import Message
from .refusal import Reason, Refusal
from .step import Step
from .trajectory import longest_first


@attrs.frozen
class Match:
    """A step whose messages begin the prompt, and what had to be forgiven to see it."""

    step: Step
    forgiven: Forgiven


def find(
    steps: Sequence[Step], prompt: Sequence[Message], forgive: Forgiven, key: str | None
) -> Match | Refusal:
    """Return the longest match; a refusal where there is none to use.

    Of equally long ones the one that is restated with the fewest differences, and of those the latest.
    """
    longest = 0
    best: Match | None = None
    for match in matches(steps, prompt, forgive):
        length = match.step.messages.length
        if length < longest:
            break
        longest = length
        if match.step.key == key and (best is None or len(match.forgiven) < len(best.forgiven)):
            best = match
        if best is not None and not best.forgiven:
            break  # before another step is compared
    if best is not None:
        return best if longest < len(prompt) else _nothing_new(longest)
    if longest:
        return Refusal(Reason.RENDERED_DIFFERENTLY, f"the step of {longest} messages has another key")
    return Refusal(Reason.NO_PREFIX, f"none of {len(steps)} steps begins these {len(prompt)} messages")


def _nothing_new(length: int) -> Refusal:
    return Refusal(Reason.NOTHING_NEW, f"a step ends with all {length} messages")


def matches(steps: Sequence[Step], prompt: Sequence[Message], forgive: Forgiven = NOTHING) -> Iterator[Match]:
    """Yield every step whose messages begin the prompt, longest first, and of equals the latest first."""
    wanted = Wanted(prompt, forgive)
    for step in longest_first(steps, len(prompt)):
        forgiven = wanted.fits(step.messages)
        if forgiven is not None:
            yield Match(step, forgiven)
