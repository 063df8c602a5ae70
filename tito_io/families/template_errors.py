"""Recognize errors that a chat template's own code raised, whatever their class."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from tito_core import TemplateRefused

_MARKS = ("__jinja_exception__", "__jinja_template__")
"""Globals of the frames that run a compiled template, which Jinja sets for its own tracebacks: the first one
in frames that it writes anew with the template's line numbers, the second one in those that really ran."""
_LONGEST = 1000


def template_refusal(error: Exception, refusals: tuple[type[Exception], ...] = ()) -> TemplateRefused | None:
    """Return the `TemplateRefused` that `error` stands for; None if it is no refusal of a template.

    It is one if the template's code was running when it was raised, because nothing but the template can
    make `raise_exception`, a missing field or a sum of a text and a number. Memory, files and networks can
    fail there, too, so their errors remain what they are. An error that was raised `from` a refusal is one.

    Args:
        error: What `apply_chat_template` raised.
        refusals: Further exceptions by which it rejects messages.
    """
    for cause in _chain(error):
        if isinstance(cause, TemplateRefused):
            return cause
        if isinstance(cause, refusals):
            return TemplateRefused(_described(cause))
        lines = _template_lines(cause)
        if lines and not isinstance(cause, MemoryError | OSError):
            return TemplateRefused(f"chat template, line {lines[-1]}: {_described(cause)}")
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from, the last one first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _template_lines(error: BaseException) -> list[int]:
    """Return the lines of the template through which an error went."""
    names = {(kind.__module__, kind.__name__) for kind in type(error).__mro__}
    # Known by name: there may be no Jinja here, or two.
    if ("jinja2.exceptions", "TemplateSyntaxError") in names:
        return []  # a template that does not compile rejects no messages
    frames = traceback.walk_tb(error.__traceback__)
    return [line for frame, line in frames if any(mark in frame.f_globals for mark in _MARKS)]


def _described(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
