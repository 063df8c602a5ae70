"""A chat template: messages in, text out, or a reason why not."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import jinja2
from attrs import field, frozen

from tito_core import InputError, TemplateRefused

from .folder import FolderError, Source
from .jinja_extensions import METER, Raised
from .limits import RenderMeter, TemplateLimits
from .sandbox import Sandbox
from .template_values import REASONING_FIELDS

if TYPE_CHECKING:
    from datetime import datetime

_LONGEST_SOURCE = 1 << 20
_LONGEST_REASON = 1000


@frozen(eq=False)
class ChatTemplate:
    """A compiled template. It holds no state, so any number of threads may render with it."""

    source: Source
    """Its text, and the file that it came from."""

    limits: TemplateLimits
    """What one render may use."""

    _compiled: jinja2.Template = field(repr=False)

    @classmethod
    def compile(cls, source: Source, limits: TemplateLimits | None = None) -> Self:
        """Compile `source`; a `FolderError` names the line that is wrong.

        >>> from datetime import datetime
        >>> template = ChatTemplate.compile(Source("{{ messages[0].content }}!", "chat_template.jinja"))
        >>> template.render({"messages": [{"content": "hi"}]}, now=datetime(2026, 1, 1))
        'hi!'
        """
        allowed = TemplateLimits() if limits is None else limits
        return cls(source, allowed, _compile(source, Sandbox(allowed)))

    def render(self, variables: Mapping[str, Any], *, now: datetime) -> str:
        """Render plain `variables` at `now`. Whatever the template does wrong is a `TemplateRefused`."""
        meter = RenderMeter(self.limits, now)
        try:
            return self._compiled.render({**variables, METER: meter})
        except MemoryError:  # an outage: the limits kept the template from making anything that large
            raise
        except Exception as error:  # all that runs in there is the template's own doing
            raise TemplateRefused(_reason(error, self.source.origin)) from error


def _compile(source: Source, sandbox: Sandbox) -> jinja2.Template:
    if len(source.text) > _LONGEST_SOURCE:
        raise FolderError(f"{source.origin}: a template of {len(source.text)} characters; is it one?")
    try:
        code = sandbox.compile(source.text, filename=source.origin)
        return jinja2.Template.from_code(sandbox, code, sandbox.globals)
    except jinja2.TemplateSyntaxError as error:
        raise FolderError(
            f"{source.origin}, line {error.lineno}: {error.message}; correct the template"
        ) from error
    except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
        # Loops that nest too deeply, a number too long: Python's compiler refuses what Jinja's lets pass.
        raise FolderError(f"{source.origin}: does not compile: {_shown(error)}") from error


def _reason(error: Exception, origin: str) -> str:
    """Say what went wrong and in which line of the template."""
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == origin
    ]
    where = f"{origin}, line {lines[-1]}" if lines else origin
    return f"{where}: {_shown(error)}"


def _shown(error: Exception) -> str:
    name = "raise_exception" if isinstance(error, Raised) else type(error).__name__
    text = f"{name}: {error}"
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "..."


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
