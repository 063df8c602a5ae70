"""Leave calls out of training rows as the options say, each together with its descendants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from .auxiliary import auxiliary_calls
from .call import Ending
from .forest import Forest
from .node import EdgeKind, Node
from .options import AuxiliaryRule, Retries, SampleOptions, TurnRule


class LeaveOutReason(Enum):
    """Why sampled ids do not train."""

    DROPPED = "an option leaves out turns that ended so, and what continues them"
    AFTER_END = "an option ends rows at an earlier turn"
    AUXILIARY = "an option leaves out calls beside a conversation"
    RETRIED = "an option keeps another turn after the same prompt"
    MASKED = "an option keeps turns that ended so and does not train them"
    TOO_LONG = "they are beyond the maximum length"
    NOT_ASKED_FOR = "no requested row contains them"


def left_out(forest: Forest, options: SampleOptions) -> Mapping[str, LeaveOutReason]:
    """Return the names of the calls that are left out, with the reason of each."""
    # Retries of one prompt are decided together, because the options choose among them. Shorter prompts
    # come first: a parent has fewer ids than its child, so it is decided before the child.
    groups: dict[str, list[Node]] = {}
    for node in forest.nodes:
        first = node.of if node.kind is EdgeKind.RETRIES and node.of is not None else node.name
        groups.setdefault(first, []).append(node)
    reasons: dict[str, LeaveOutReason] = {}
    if options.auxiliary is AuxiliaryRule.DROP:
        reasons = dict.fromkeys(auxiliary_calls(forest), LeaveOutReason.AUXILIARY)
    for group in sorted(groups.values(), key=lambda group: group[0].call.start):
        for node in group:
            reason = reasons.get(node.name) or _reason(node, forest, options, reasons)
            if reason is not None:
                reasons[node.name] = reason
        # A call that sampled nothing is no reply, so that it never replaces one.
        staying = [
            node for node in group if node.name not in reasons and node.call.ending is not Ending.EMPTY
        ]
        chosen = _chosen(staying, forest, options.retries)
        reasons |= {node.name: LeaveOutReason.RETRIED for node in staying if node.name not in chosen}
    return reasons


def _reason(
    node: Node, forest: Forest, options: SampleOptions, reasons: Mapping[str, LeaveOutReason]
) -> LeaveOutReason | None:
    """Return why a call is left out for its parent or its own ending; None where neither applies."""
    if node.parent is not None:
        if node.parent in reasons:
            return reasons[node.parent]
        if options.rule(forest[node.parent].call.ending) is TurnRule.END:
            return LeaveOutReason.AFTER_END
    return LeaveOutReason.DROPPED if options.rule(node.call.ending) is TurnRule.DROP else None


def _chosen(nodes: Sequence[Node], forest: Forest, retries: Retries) -> Collection[str]:
    """Return which of several turns after one prompt stay; `nodes` are sorted by key."""
    names = [node.name for node in nodes]
    if retries is Retries.NEWEST:
        return names[-1:]
    if retries is Retries.EXTENDED:
        return [name for name in names if forest.children[name]] or names[-1:]
    return names
