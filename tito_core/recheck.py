"""Looking a bridge over at full price: the whole conversation rendered, and its end compared."""

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


def recheck_questions(found: Stitched, prompt: Sequence[Message]) -> Questions[bool | None]:
    """Tell whether what the real conversation's render has after the turn is what was added.

    The turn's own text alone is another one, so that its end is seen. Costs O(history) to render, and to
    tokenize only what is new where whoever answers can cut text. None where the template takes no way of
    writing the conversation, or loses the turn's text.
    """
    start = found.step.messages.length
    *past, message = clean(prompt[:start])
    answer = None
    for environment in readings(clean(found.environment)):
        since = None if says((*past, *environment), SHORT) else SHORT  # cut at the turn's own text
        placed = yield from _placed(tuple(past), message, environment, since)
        if placed is None:
            continue
        form, seam = placed
        if _added(found, message, seam):
            return True
        answer = False
        if not (yield from _drops(tuple(past), form, environment, seam, since)):
            break
    return answer


def _placed(
    past: Environment, message: Plain, environment: Environment, since: str | None
) -> Questions[tuple[TurnForm, Seam] | None]:
    """Return the first way of writing the turn in which its end can be told, and that end."""
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


def _added(found: Stitched, message: Plain, seam: Seam) -> bool:
    """Compare a tail: all but what the turn sampled of its close itself is what was added.

    After a call the tail begins with the rest of the call, which is not looked into.
    """
    rest = len(seam.tail) - len(found.bridge)
    if rest < 0 or seam.tail[rest:] != found.bridge:
        return False
    sampled = tuple(found.step.completion_ids)
    return bool(calls_of(message)) or sampled[len(sampled) - rest :] == seam.tail[:rest]


def _drops(
    past: Environment, form: TurnForm, environment: Environment, seam: Seam, since: str | None
) -> Questions[bool]:
    """Tell whether the template drops developer messages: only then may another reading be the right one."""
    told = [place for place, one in enumerate(environment) if one["role"] == "developer"]
    if not told:
        return False
    longer = (*past, form.within(SHORT), *lengthened(environment, told))
    try:
        return (yield from ask(longer, since=since)) == seam.ids
    except TemplateRefused:
        return False
