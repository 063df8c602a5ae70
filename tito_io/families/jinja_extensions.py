"""Extensions of Jinja: what transformers gives to chat templates, and what bounds their loops."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.runtime import Context
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from .limits import RenderMeter

if TYPE_CHECKING:
    from jinja2.parser import Parser

METER = " meter"
"""The variable that holds a render's `RenderMeter`. No template can name it, because of the space."""


def meter(context: Context) -> RenderMeter:
    """Return the meter of the render that `context` belongs to."""
    render_meter: RenderMeter = context.parent[METER]
    return render_meter


class Raised(TemplateError):  # noqa: N818  # named after the function that raises it
    """A template called `raise_exception`."""


class GenerationBlock(Extension):
    """The tag `{% generation %}` around an assistant's text. A render prints its body, in its own scope."""

    tags = frozenset({"generation"})  # type: ignore[assignment]  # jinja2 declares a set and only reads it

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse up to `{% endgeneration %}` into a call of `body`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller: Callable[[], str]) -> str:
        """Return the text between the tags."""
        return caller()


class DictFunction:
    """The function `dict`. The type itself would lead a template to `type` and `object`."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """Return a new dict."""
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Return a new dict with one value for all keys."""
        return dict.fromkeys(*args)


class TemplateNames(Namespace):
    """A namespace without names that begin with an underscore, which Python would look up as methods."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # No parameter has a name, so that a template may set a variable `self`.
        for name in dict(*args[1:], **kwargs):
            _public(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _public(name)
        Namespace.__setitem__(self, name, value)


def _public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no name that begins with an underscore: {name!r}")


def raise_exception(message: Any) -> NoReturn:
    """Refuse to render, with the template's `message`."""
    raise Raised(str(message))


@pass_context
def strftime_now(context: Context, format: str) -> str:  # noqa: A002  # templates may pass it by name
    """Return the time of the render, which is the same throughout."""
    return meter(context).now.strftime(format)


def tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Write JSON as transformers does: nothing is escaped for HTML."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


TICK = " tick"
"""The filter that counts a step. No template can name it, because of the space."""

WEIGHED = " weighed"
"""The filter that refuses values too large to walk through."""


class Guards(NodeTransformer):
    """Adds filters to a parsed template: loops count their rounds, comparisons weigh their values."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  # jinja2 finds it by this name
        """Count each round of a loop, also those that its condition skips."""
        self.generic_visit(node)
        tick = _through(TICK, nodes.Const(True), node.lineno)  # noqa: FBT003  # nodes take no keywords
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(tick, node.test, lineno=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802  # likewise
        """Weigh both sides of a comparison, unless one is a literal, which keeps the comparison short."""
        self.generic_visit(node)
        if not any(_is_constant(side) for side in (node.expr, *(op.expr for op in node.ops))):
            node.expr = _through(WEIGHED, node.expr, node.lineno)
            for op in node.ops:
                op.expr = _through(WEIGHED, op.expr, node.lineno)
        return node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802  # likewise
        """Weigh a new tuple: it may become a key, and hashing a key walks through all that it holds."""
        self.generic_visit(node)
        return node if node.ctx != "load" or _is_constant(node) else _through(WEIGHED, node, node.lineno)


def _through(name: str, value: nodes.Expr, line: int) -> nodes.Expr:
    return nodes.Filter(value, name, [], [], None, None, lineno=line)


def _is_constant(node: nodes.Expr) -> bool:
    """Return whether `node` is a literal or a list of literals: comparing with it looks one level deep."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(item, nodes.Const) for item in node.items)
    return isinstance(node, nodes.Const)
