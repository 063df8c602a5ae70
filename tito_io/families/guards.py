"""What is put into a parsed template so that its loops count and its comparisons weigh."""

from __future__ import annotations

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

TICK = " tick"
"""The filter that counts a step. Its space keeps it out of a template's reach."""

WEIGHED = " weighed"
"""The filter that refuses a value too large to walk through."""


class Guards(NodeTransformer):
    """Puts into a parsed template what makes its loops count and its comparisons weigh."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  # jinja2 finds it by this name
        """Count each round, also those that a condition skips."""
        self.generic_visit(node)
        tick = _through(TICK, nodes.Const(True), node.lineno)  # noqa: FBT003  # nodes take no keywords
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(tick, node.test, lineno=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802  # likewise
        """Weigh both sides of a comparison, unless a literal on one side keeps it short."""
        self.generic_visit(node)
        if not any(_is_constant(side) for side in (node.expr, *(op.expr for op in node.ops))):
            node.expr = _through(WEIGHED, node.expr, node.lineno)
            for op in node.ops:
                op.expr = _through(WEIGHED, op.expr, node.lineno)
        return node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802  # likewise
        """Weigh a tuple where it is made: it can be a key, and a key is hashed as deep as it goes."""
        self.generic_visit(node)
        return node if node.ctx != "load" or _is_constant(node) else _through(WEIGHED, node, node.lineno)


def _through(name: str, value: nodes.Expr, line: int) -> nodes.Expr:
    return nodes.Filter(value, name, [], [], None, None, lineno=line)


def _is_constant(node: nodes.Expr) -> bool:
    """Tell whether `node` is a literal, or a list of literals: comparing with one looks one level deep."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(item, nodes.Const) for item in node.items)
    return isinstance(node, nodes.Const)
