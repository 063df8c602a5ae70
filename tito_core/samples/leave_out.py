"""Which calls stay: a call that is left out takes with it what continues it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from .call import Ending, StoredCall
from .forest import Forest
from .node import EdgeKind, Node
from .options import Retries, SampleOptions, TurnRule


class LeaveOutReason(Enum):
    """Why sampled ids train nothing."""

    DROPPED = "an option leaves out turns that ended so, and what continues them"
    AFTER_END = "an option ends rows at a turn before"
    RETRIED = "an option keeps another turn after the same prompt"
    MASKED = "an option keeps turns that ended so and does not train them"
    TOO_LONG = "they stand behind the maximum length"
    NOT_ASKED_FOR = "no row that was asked for contains them"


def left_out(forest: Forest, options: SampleOptions) -> Mapping[str, LeaveOutReason]:
    """Return the calls that do not stay, and why.

    What is sent the same prompt is looked at together, shorter prompts first: a call's parent stands in
    fewer ids, so its fate is known by then.
    """
    lost: dict[str, LeaveOutReason] = {}
    for group in _groups(forest):
        for node in group:
            why = _own(node, forest, options, lost)
            if why is not None:
                lost[node.name] = why
        alive = [node for node in group if node.name not in lost and node.call.ending is not Ending.EMPTY]
        stay = _staying(alive, forest, options.retries)
        lost |= {node.name: LeaveOutReason.RETRIED for node in alive if node.name not in stay}
    return lost


def _groups(forest: Forest) -> Iterable[list[Node]]:
    """Return the nodes by what they were sent, shorter prompts first."""
    groups: dict[str, list[Node]] = {}
    for node in forest.nodes:
        first = node.of if node.kind is EdgeKind.RETRIES and node.of is not None else node.name
        groups.setdefault(first, []).append(node)
    return sorted(groups.values(), key=lambda group: group[0].call.start)


def _own(
    node: Node, forest: Forest, options: SampleOptions, lost: Mapping[str, LeaveOutReason]
) -> LeaveOutReason | None:
    """Return why a call is left out for itself, or with its parent."""
    if node.parent is not None:
        above = lost.get(node.parent) or (
            LeaveOutReason.AFTER_END if ends(forest[node.parent].call, options) else None
        )
        if above is not None:
            return above
    return LeaveOutReason.DROPPED if options.rule(node.call.ending) is TurnRule.DROP else None


def ends(call: StoredCall, options: SampleOptions) -> bool:
    """Tell whether rows end with this turn."""
    return options.rule(call.ending) is TurnRule.END


def _staying(alive: list[Node], forest: Forest, retries: Retries) -> set[str]:
    """Return which of several turns after one prompt stay."""
    if retries is Retries.NEWEST:
        return {node.name for node in alive[-1:]}
    if retries is Retries.EXTENDED:
        extended = {node.name for node in alive if forest.children[node.name]}
        return extended or {node.name for node in alive[-1:]}
    return {node.name for node in alive}
