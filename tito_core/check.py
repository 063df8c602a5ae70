"""Looking a bridge over at full price: the whole conversation rendered, and its end compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from .ask import Asking, ask
from .dummy import forms
from .environment import clean, readings
from .errors import TemplateRefused
from .message import Message
from .seam import SHORT
from .stitch import Stitched


def checking(found: Stitched, prompt: Sequence[Message]) -> Asking[bool | None]:
    """Tell whether the real conversation's render ends with the ids that were added.

    One way of writing it that the template takes is enough: templates differ in the roles and the form of
    arguments that they know. Costs O(history) to render, and to tokenize only what is new where whoever
    answers can cut text. None where the template takes no way of writing the conversation.
    """
    start = found.step.messages.length
    *past, message = clean(prompt[:start])
    taken = False
    for environment, form in product(readings(clean(found.environment)), forms(message)):
        try:
            ids = yield from ask((*past, form.within(SHORT), *environment), since=SHORT)
        except TemplateRefused:
            continue
        if ids[len(ids) - len(found.bridge) :] == found.bridge:
            return True
        taken = True
    return False if taken else None
