"""What a benchmark of templates finds out: verdicts on answers, by conversation, rendering and template."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

EXACT, REFUSED, UNCLOSED, DROPPED, WRONG = "exact", "refused", "no stop", "dropped", "wrong"
UNRENDERED, UNCLEAR = "unrendered", "unclear"
WAYS = ("stitch", "profile", "bridge", "bridge: turn", "bridge: history")
"""Ways to ask: `stitch` without and with a profile; `Bridge` with ids, with the turn, with the history."""


@attrs.frozen
class Answer:
    """One answer of the kernel, judged.

    Attributes:
        way: How it was asked; one of `WAYS`.
        verdict: `EXACT`, `REFUSED`, `WRONG`; `DROPPED` where it is refused and the template drops a new
            message or the turn's text; `UNCLOSED` where it is refused and the template ends no turn with a
            stop; `UNCLEAR` where the oracle cannot judge an answer.
        reason: Why it was refused, or what is wrong.
    """

    way: str
    verdict: str
    reason: str = ""


@attrs.frozen
class Cell:
    """One conversation in one rendering.

    Attributes:
        shape: The conversation's name.
        verdict: `UNRENDERED` where the template refuses the conversation, else empty.
        reason: The template's error, or what the oracle could not see.
        answers: The kernel's answers.
        changed: What a re-render leaves out of the turn, and of the prompt that it was sampled after.
    """

    shape: str
    verdict: str = ""
    reason: str = ""
    answers: tuple[Answer, ...] = ()
    changed: tuple[str, ...] = ()


@attrs.frozen
class Rendered:
    """One rendering of a template.

    Attributes:
        label: Tools and arguments.
        cells: One for each shape.
        stops: The stops that it shows.
        seams: What follows a plain turn and a call: close, opener, generation prompt; by role.
    """

    label: str
    cells: tuple[Cell, ...]
    stops: tuple[str, ...] = ()
    seams: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Judged:
    """All of a template.

    Attributes:
        name: Its name.
        digest: The hash of its text.
        repositories: The repositories that have it.
        renderings: Its renderings that differ.
        error: Why it cannot be loaded.
        seconds: Processor time.
    """

    name: str
    digest: str
    repositories: tuple[str, ...]
    renderings: tuple[Rendered, ...] = ()
    error: str = ""
    seconds: float = 0.0
