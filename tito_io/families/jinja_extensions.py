"""What chat templates use beyond Jinja's own: tags, functions and filters that transformers gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.runtime import Context
from jinja2.utils import Namespace

from .limits import RenderMeter

if TYPE_CHECKING:
    from jinja2.parser import Parser

METER = " meter"
"""Where a render's `RenderMeter` stands among its variables: the space keeps it out of a template's reach."""


def meter(context: Context) -> RenderMeter:
    """Return the meter of the render that `context` belongs to."""
    found: RenderMeter = context.parent[METER]
    return found


class Raised(TemplateError):  # noqa: N818  # not ours to fail: the template spoke
    """A template called `raise_exception`."""


class GenerationBlock(Extension):
    """`{% generation %}` marks what the assistant says. Rendering prints its body, in a scope of its own."""

    tags = frozenset({"generation"})  # type: ignore[assignment]  # jinja2 declares a set and only reads it

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse up to `{% endgeneration %}` into a call of `body`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller: Callable[[], str]) -> str:
        """Return what stands between the tags."""
        return caller()


class DictFunction:
    """The function `dict`, and not the type, which would open a way to all types."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """Return a new dict."""
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Return a new dict with the same value everywhere."""
        return dict.fromkeys(*args)


class TemplateNames(Namespace):
    """A namespace without underscore names, by which the interpreter would find methods on it."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # No parameter is named, so that a template may name one of its own `self`.
        for name in dict(*args[1:], **kwargs):
            _public(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _public(name)
        Namespace.__setitem__(self, name, value)


def _public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no name with an underscore in front: {name!r}")


def raise_exception(message: Any) -> NoReturn:
    """Refuse to render, in the template's own words."""
    raise Raised(str(message))


@pass_context
def strftime_now(context: Context, format: str) -> str:  # noqa: A002  # templates may pass it by name
    """Return the time of the render, the same wherever it is asked."""
    return meter(context).now.strftime(format)


def tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Write JSON as transformers does: nothing is escaped for HTML."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
