"""Looking a bridge over at full price: the whole conversation rendered, and its end compared."""

from __future__ import annotations

from collections.abc import Sequence

from .ask import Asking, ask
from .dummy import forms
from .environment import readings
from .errors import TemplateRefused
from .message import Message, copied
from .seam import SHORT
from .stitch import Stitched


def checking(found: Stitched, prompt: Sequence[Message]) -> Asking[bool | None]:
    """Tell whether the real conversation's render ends with the ids that were added.

    Costs O(history) to render, and to tokenize only what is new where whoever answers can cut text. None
    where the template takes no way of writing the conversation.
    """
    start = found.step.messages.length
    past = tuple(prompt[: start - 1])
    message = copied([prompt[start - 1]], "prompt")[0]
    for environment in readings(tuple(found.environment)):
        for form in forms(message):
            try:
                ids = yield from ask((*past, form.within(SHORT), *environment), since=SHORT)
            except TemplateRefused:
                continue
            return ids[len(ids) - len(found.bridge) :] == found.bridge
    return None
