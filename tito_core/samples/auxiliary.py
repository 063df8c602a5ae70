"""Calls that a program makes beside its conversation: titles, topic checks, probes, summaries.

They are recognized by what they are, with the whole rollout in view: calls without tools that continue no
call and that no call continues, where other calls of the rollout have tools.
"""

from __future__ import annotations

from ..normalization.key import render_key
from .forest import Forest
from .node import EdgeKind, Node

NO_TOOLS = render_key()[:3]
"""How the key of a rendering without tools begins."""
ALONE = frozenset((EdgeKind.UNRELATED, EdgeKind.RETRIES))


def auxiliary_calls(forest: Forest) -> frozenset[str]:
    """Return the names of the calls of a `forest` that stand beside its conversations.

    A call whose key is not known does not count, nor does one that a later prompt restates with other tools.

    >>> from tito_core import Step
    >>> from tito_core.samples import StoredCall
    >>> def call(name, ids, sampled, tools):
    ...     return StoredCall(name=name, step=Step(
    ...         prompt=[], completion=[], prompt_ids=ids, completion_ids=sampled, key=render_key(tools)))
    >>> tools = [{"type": "function", "function": {"name": "f"}}]
    >>> sorted(auxiliary_calls(Forest.of([
    ...     call("title", [9], [8], []), call("a", [1], [2], tools), call("b", [1, 2, 3], [4], tools)])))
    ['title']
    """
    if not any(call.step.key is not None and _has_tools(call.step.key) for call in forest.calls):
        return frozenset()
    restated = {node.of for node in forest.nodes if node.kind is EdgeKind.REWRITES}
    restated.update(name for node in forest.nodes for name in node.rivals)  # any of them may be the one
    return frozenset(
        node.name
        for node in forest.nodes
        if _is_alone(node, forest) and _lacks_tools(node) and node.name not in restated
    )


def _is_alone(node: Node, forest: Forest) -> bool:
    return node.parent is None and node.kind in ALONE and not forest.children[node.name]


def _lacks_tools(node: Node) -> bool:
    key = node.call.step.key
    return key is not None and not _has_tools(key)


def _has_tools(key: str) -> bool:
    return not key.startswith(NO_TOOLS)
