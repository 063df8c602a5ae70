"""Find which agent made a call: the main one, a sub-agent, or neither.

Auxiliary calls are those that a program makes beside its conversation: titles, topic checks, probes,
summaries.

They are recognized by what they are, with the whole rollout in view: calls without tools that continue no
call and that no call continues, where other calls of the rollout have tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ..normalization.key import render_key
from .forest import Forest
from .node import EdgeKind, Node

NO_TOOLS = render_key()[:3]
"""How the key of a rendering without tools begins."""


class Agent(Enum):
    """Who made the calls of a row."""

    MAIN = "the agent that the rollout began with"
    SUB_AGENT = "an agent whose calls continue none of the main agent's"
    AUXILIARY = "none: a call beside a conversation"


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


def agents(forest: Forest) -> Mapping[str, Agent]:
    """Return for each call of a `forest` which agent made it.

    The first tree with a call that is not auxiliary is the main agent's. Another tree is a sub-agent's, also
    where an agent began anew and no edge shows it.
    """
    beside = auxiliary_calls(forest)
    main = next((tree for tree in forest.trees if not beside.issuperset(tree)), ())
    found = dict.fromkeys((call.name for call in forest.calls), Agent.SUB_AGENT)
    return found | dict.fromkeys(main, Agent.MAIN) | dict.fromkeys(beside, Agent.AUXILIARY)


def _is_alone(node: Node, forest: Forest) -> bool:
    return node.parent is None and node.kind in ALONE and not forest.children[node.name]


def _lacks_tools(node: Node) -> bool:
    key = node.call.step.key
    return key is not None and not _has_tools(key)


def _has_tools(key: str) -> bool:
    return not key.startswith(NO_TOOLS)
