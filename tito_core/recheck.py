"""Verify a stitched prompt against a render of the whole conversation."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import TemplateRefused
from .message import Message
from .normalization.clean import clean, lengthened, readings, says
from .questions import Questions, ask
from .seams.prove import Environment
from .seams.seam import LONGER, SHORT, Seam, find_seam
from .seams.stand_in import Plain, TurnForm, calls_of, forms
from .stitch import Stitched


def recheck_questions(stitched: Stitched, prompt: Sequence[Message]) -> Questions[bool | None]:
    """Ask whether the real conversation's render has the stitched ids after the turn.

    Only the turn's own text is replaced, so that its end can be found. It costs O(history) to render, and
    O(new) to tokenize where the receiver can cut text. The result is None if the template takes no way of
    writing the conversation, or loses the turn's text. `prompt` is the one that was stitched.
    """
    start = stitched.step.messages.length
    *past, message = clean(prompt[:start])
    agrees = None
    for environment in readings(clean(stitched.environment)):
        since = None if says((*past, *environment), SHORT) else SHORT  # cut where the turn's text begins
        placed = yield from _placed(tuple(past), message, environment, since)
        if placed is None:
            continue
        form, seam = placed
        if _equals_tail(stitched, message, seam):
            return True
        agrees = False
        if not (yield from _drops_developer(tuple(past), form, environment, seam, since)):
            break
    return agrees


def _placed(
    past: Environment, message: Plain, environment: Environment, since: str | None
) -> Questions[tuple[TurnForm, Seam] | None]:
    """Return the first way of writing the turn in which its end can be located, and that seam."""
    for form in forms(message):
        try:
            short = yield from ask((*past, form.within(SHORT), *environment), since=since)
            longer = yield from ask((*past, form.within(LONGER), *environment), since=since)
        except TemplateRefused:
            continue
        seam = find_seam(short, longer)
        if seam is not None:
            return form, seam
    return None


def _equals_tail(stitched: Stitched, message: Plain, seam: Seam) -> bool:
    """Return whether the tail is what was added, after what the turn sampled of its close itself.

    After a tool call the tail begins with the rest of the call, which is not compared.
    """
    rest = len(seam.tail) - len(stitched.bridge)
    if rest < 0 or seam.tail[rest:] != stitched.bridge:
        return False
    sampled = tuple(stitched.step.completion_ids)
    return bool(calls_of(message)) or sampled[len(sampled) - rest :] == seam.tail[:rest]


def _drops_developer(
    past: Environment, form: TurnForm, environment: Environment, seam: Seam, since: str | None
) -> Questions[bool]:
    """Return whether the template drops developer messages: only then another reading may be right."""
    places = [place for place, message in enumerate(environment) if message["role"] == "developer"]
    if not places:
        return False
    longer = (*past, form.within(SHORT), *lengthened(environment, places))
    try:
        return (yield from ask(longer, since=since)) == seam.ids
    except TemplateRefused:
        return False
