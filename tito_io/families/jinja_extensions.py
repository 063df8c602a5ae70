"""Extensions of Jinja: the functions that transformers gives to chat templates, and bounds of their loops."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from .limits import INTEGER_BITS, LimitReached
from .meter import STEP, meter

if TYPE_CHECKING:
    from jinja2.parser import Parser


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


LONGEST_TIME = 1000
"""Characters of a time's format: one sign may stand for a long text."""


def strftime_now(format: str) -> str:  # noqa: A002  # templates may pass it by name
    """Return the time of the render, which is the same throughout."""
    if len(format) > LONGEST_TIME:
        raise LimitReached(f"a time's format of {len(format)} characters, where {LONGEST_TIME} are allowed")
    return meter().now.strftime(format)


def tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Write JSON as transformers does: nothing is escaped for HTML."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


TICK = " tick"
"""The filter that counts a step. No template can name it, because of the space."""

WEIGHED = " weighed"
"""The filter that refuses values too large to walk through."""

COUNTED = " counted"
"""The filter that counts the memory of a new value."""

ARGUMENTS = " arguments"
"""The filter that refuses too many arguments of a call."""

_LITERALS = (nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.BinExpr, nodes.UnaryExpr)
"""What makes small values without a call that could count them."""


class Guards(NodeTransformer):
    """Adds filters to a parsed template: repeated bodies count steps, comparisons and slices their values."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  # jinja2 finds it by this name
        """Count each round of a loop, also those that its condition skips."""
        self._count_steps(node)
        if node.test is not None:
            node.test = nodes.And(_tick(node, STEP), node.test, lineno=node.lineno)
        return node

    def _count_steps(self, node: nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
        """Count a step wherever `node.body` begins, with the values that it may make."""
        size = STEP * (1 + sum(map(_literals, node.body)))
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_tick(node, size), lineno=node.lineno))
        return node

    visit_Macro = visit_CallBlock = visit_Block = _count_steps  # noqa: N815  # likewise

    def visit_Const(self, node: nodes.Const) -> nodes.Node:  # noqa: N802  # likewise
        """Refuse a number that no operation may make either."""
        if isinstance(node.value, int) and node.value.bit_length() > INTEGER_BITS:
            raise LimitReached(f"line {node.lineno}: an integer wider than {INTEGER_BITS} bits")
        return node

    def _limit_arguments(self, node: nodes.Call | nodes.Filter | nodes.Test) -> nodes.Node:
        """Count the arguments that `*values` would make, before a tuple holds them."""
        self.generic_visit(node)
        if node.dyn_args is not None:
            node.dyn_args = _through(ARGUMENTS, node.dyn_args, node.lineno)
        return node

    visit_Call = visit_Filter = visit_Test = _limit_arguments  # noqa: N815  # likewise

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802  # likewise
        """Count the copy that a slice is."""
        self.generic_visit(node)
        return _through(COUNTED, node, node.lineno) if isinstance(node.arg, nodes.Slice) else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802  # likewise
        """Weigh both sides of a comparison, unless a literal keeps the comparison short."""
        self.generic_visit(node)
        searches = any(op.op in {"in", "notin"} and not _is_constant(op.expr) for op in node.ops)
        if searches or not any(_is_constant(side) for side in (node.expr, *(op.expr for op in node.ops))):
            node.expr = _through(WEIGHED, node.expr, node.lineno)
            for op in node.ops:
                op.expr = _through(WEIGHED, op.expr, node.lineno)
        return node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802  # likewise
        """Weigh a new tuple: it may become a key, and hashing a key walks through all that it holds."""
        self.generic_visit(node)
        return node if node.ctx != "load" or _is_constant(node) else _through(WEIGHED, node, node.lineno)


def _literals(node: nodes.Node) -> int:
    """Return how many values the literals and the operators in `node` make at most."""
    found = [node, *node.find_all(_LITERALS)] if isinstance(node, _LITERALS) else node.find_all(_LITERALS)
    total = sum(1 + len(getattr(one, "items", ())) // 8 for one in found)
    # Python makes no list of the constants in `role in ["user", "tool"]`.
    return total - sum(1 for one in node.find_all(nodes.Operand) if _is_constant(one.expr))


def _tick(node: nodes.Node, size: int) -> nodes.Expr:
    """Return an expression that is true and counts a step of `size` bytes."""
    return _through(TICK, nodes.Const(size), node.lineno)


def _through(name: str, value: nodes.Expr, line: int) -> nodes.Expr:
    return nodes.Filter(value, name, [], [], None, None, lineno=line)


def _is_constant(node: nodes.Expr) -> bool:
    """Return whether `node` is a literal or a list of literals: comparing with it looks one level deep."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(item, nodes.Const) for item in node.items)
    return isinstance(node, nodes.Const)
