"""A last message that goes on: rendered up to its last character, without what closes a turn.

A mark is put behind the message's text, and the render is cut where the mark comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from tito_core import InputError, TemplateRefused

from .template_values import REASONING_FIELDS

_MARK = "THE_FINAL_MESSAGE_GOES_ON_HERE "
"""It ends in a space so that the cut can tell a template that trims from one that does not."""


@frozen
class Continuation:
    """Messages with the mark in the last one, and the text that stands before the mark."""

    messages: list[dict[str, Any]]
    text: str

    def cut(self, rendered: str) -> str:
        """Return `rendered` up to where the message ends.

        >>> Continuation([], "so").cut("<bot>so" + _MARK + "<end>")
        '<bot>so'
        """
        where = rendered.rfind(_MARK.strip())
        if where < 0 or self.text.strip() not in rendered:
            raise TemplateRefused("the template leaves out or rewrites the message that is to be continued")
        kept = rendered[:where]
        if _MARK.strip() in kept:
            raise TemplateRefused("the template prints the message that is to be continued more than once")
        return kept if rendered.startswith(_MARK, where) else kept.rstrip()


def continuation(messages: list[dict[str, Any]], field: str, source: str) -> Continuation:
    """Mark `field` of the last of `messages`, which the template `source` must read.

    >>> continuation([{"role": "assistant", "content": "so"}], "content", "{{ messages[0].content }}").text
    'so'
    """
    last = messages[-1]
    said = last.get(field)
    if said is None:
        raise InputError(f"continue_final_message: the last message has no {field!r} to continue")
    fields = [field]
    if field in REASONING_FIELDS:
        fields = [name for name in REASONING_FIELDS if last.get(name) == said]
    if not any(name in source for name in fields):
        raise InputError(f"continue_final_message: the template reads no {field!r} of a message")
    marked, text = _marked(said, field)
    return Continuation([*messages[:-1], {**last, **dict.fromkeys(fields, marked)}], text)


def _marked(said: Any, field: str) -> tuple[Any, str]:
    """Return a field's value with the mark behind its last text, and that text."""
    if isinstance(said, str):
        return said + _MARK, said
    parts = list(said) if isinstance(said, list | tuple) else []
    for index in reversed(range(len(parts))):
        part = parts[index]
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            return [*parts[:index], {**part, "text": part["text"] + _MARK}, *parts[index + 1 :]], part["text"]
    raise InputError(f"continue_final_message: {field!r} of the last message has no text to continue")
