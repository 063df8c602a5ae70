"""Render messages with a chat template, whole or up to the end of an unfinished last message."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

import jinja2
from attrs import field, frozen

from tito_core import InputError, TemplateRefused

from .folder import FolderError, Source
from .jinja_extensions import Raised
from .limits import TemplateLimits
from .meter import metered
from .sandbox import Sandbox
from .template_values import REASONING_FIELDS

_LONGEST_SOURCE = 1 << 18
"""The longest of 856 public templates has a fifth of these characters."""
_LONGEST_REASON = 1000


@frozen(eq=False)
class ChatTemplate:
    """A compiled template. It holds no state, so any number of threads may render with it.

    Attributes:
        source: The template's text, and the file that it came from.
        limits: What one render may use.
    """

    source: Source
    limits: TemplateLimits
    _compiled: jinja2.Template = field(repr=False)

    @classmethod
    def compile(cls, source: Source, limits: TemplateLimits | None = None) -> Self:
        """Compile `source`; a `FolderError` names the line that is wrong.

        >>> from datetime import UTC, datetime
        >>> template = ChatTemplate.compile(Source("{{ messages[0].content }}!", "chat_template.jinja"))
        >>> template.render({"messages": [{"content": "hi"}]}, now=datetime(2026, 1, 1))
        'hi!'
        """
        if len(source.text) > _LONGEST_SOURCE:
            raise FolderError(f"{source.origin}: a chat template has at most {_LONGEST_SOURCE} characters")
        allowed = TemplateLimits() if limits is None else limits
        sandbox = Sandbox(allowed)
        try:
            with metered(allowed, datetime.min.replace(tzinfo=UTC)):  # filters of literals are computed here
                code = sandbox.compile(source.text, filename=source.origin)
            template = jinja2.Template.from_code(sandbox, code, sandbox.globals)
        except jinja2.TemplateSyntaxError as error:
            fault = str(error.message).removesuffix(".")
            raise FolderError(
                f"{source.origin}, line {error.lineno}: {fault}; correct the template"
            ) from error
        except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
            # Python's compiler refuses what Jinja's accepts: loops nested too deeply, numbers too long.
            raise FolderError(f"{source.origin}: does not compile: {_described(error)}") from error
        return cls(source, allowed, template)

    def render(self, variables: Mapping[str, Any], *, now: datetime) -> str:
        """Render plain `variables` at the time `now`; every error of the template is a `TemplateRefused`."""
        try:
            with metered(self.limits, now):
                return self._compiled.render(variables)
        except MemoryError:  # the machine is out of memory: the limits allow no value that large
            raise
        except Exception as error:  # whatever is raised in there, the template's code raised it
            raise TemplateRefused(_reason(error, self.source.origin)) from error


def _reason(error: Exception, origin: str) -> str:
    """Return what went wrong, and in which line of the template."""
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == origin
    ]
    where = f"{origin}, line {lines[-1]}" if lines else origin
    return f"{where}: {_described(error)}"


def _described(error: Exception) -> str:
    name = "raise_exception" if isinstance(error, Raised) else type(error).__name__
    text = f"{name}: {error}"
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "..."


_MARK = "THE_FINAL_MESSAGE_GOES_ON_HERE "
"""Put behind the last message's text; the render is cut where it comes out. It ends in a space so that the
cut can tell a template that trims from one that does not."""


@frozen
class Continuation:
    """Messages whose last one stays open: rendered up to its last character, without what closes a turn.

    Attributes:
        messages: The messages, with the mark in the last one.
        text: The text that stands before the mark.
    """

    messages: list[dict[str, Any]]
    text: str

    def cut(self, rendered: str) -> str:
        """Return `rendered` up to where the message ends.

        >>> Continuation([], "so").cut("<bot>so" + _MARK + "<end>")
        '<bot>so'
        """
        where = rendered.rfind(_MARK.strip())
        if where < 0 or self.text.strip() not in rendered:
            raise TemplateRefused("the template leaves out or rewrites the message to be continued")
        before = rendered[:where]
        if _MARK.strip() in before:
            raise TemplateRefused("the template prints the message to be continued more than once")
        return before if rendered.startswith(_MARK, where) else before.rstrip()


def continuation(messages: list[dict[str, Any]], field: str, source: str) -> Continuation:
    """Put the mark into `field` of the last of `messages`; the template `source` must read that field.

    >>> continuation([{"role": "assistant", "content": "so"}], "content", "{{ messages[0].content }}").text
    'so'
    """
    last = messages[-1]
    value = last.get(field)
    if value is None:
        raise InputError(f"continue_final_message: the last message has no {field!r} to continue")
    fields = [field]
    if field in REASONING_FIELDS:  # `plain_messages` gives reasoning every name that templates read
        fields = [name for name in REASONING_FIELDS if last.get(name) == value]
    if not any(name in source for name in fields):
        raise InputError(f"continue_final_message: the template reads no {field!r} of a message")
    marked, text = _marked(value, field)
    return Continuation([*messages[:-1], {**last, **dict.fromkeys(fields, marked)}], text)


def _marked(value: Any, field: str) -> tuple[Any, str]:
    """Return a field's value with the mark behind its last text, and that text."""
    if isinstance(value, str):
        return value + _MARK, value
    parts = list(value) if isinstance(value, list | tuple) else []
    for index in reversed(range(len(parts))):
        part = parts[index]
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            return [*parts[:index], {**part, "text": part["text"] + _MARK}, *parts[index + 1 :]], part["text"]
    raise InputError(f"continue_final_message: {field!r} of the last message has no text to continue")
