"""Find each call's parent by its ids, and explain a call without a parent by its messages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import attrs

from ..match import NOTHING, PromptMatcher
from .call import StoredCall
from .media_tags import MediaTags
from .node import NO_CANDIDATES, Candidates, EdgeKind, Node
from .restated import MessageTrie, TurnIndex
from .trie import Branch, Place, Trie, settled


def make_nodes(calls: Sequence[StoredCall]) -> tuple[Node, ...]:
    """Return the node of each call; `calls` are sorted by key."""
    trie, tags = Trie(), MediaTags()
    ends = [trie.place(tags.tagged(call.ids, call.step.media)) for call in calls]
    prompts = [tags.tagged(call.step.prompt_ids, call.step.media) for call in calls]
    # A place is settled only after the last one was added, because each may split a branch.
    starts = list(map(settled, list(map(trie.place, prompts))))
    call_ends = CallEnds(zip(calls, ends, strict=True))
    first: dict[Place, str] = {}
    nodes = []
    for call, start in zip(calls, starts, strict=True):
        # Calls without prompt ids are not retries of each other.
        earliest = first.setdefault(start, call.name) if call.start else call.name
        nodes.append(_node_by_ids(call, earliest, call_ends.nearest(start)))
    return tuple(_find_compactions(_find_rewrites(nodes)))


class CallEnds:
    """The places in the tree of ids where calls end. Calls that sampled nothing are left out."""

    def __init__(self, ends: Iterable[tuple[StoredCall, Place]]) -> None:
        """Index calls by the places of their last ids."""
        self._calls: dict[Place, Candidates] = {}
        for call, end in ends:
            if call.start < call.stop:
                self._calls.setdefault(settled(end), Candidates()).add(call)
        self._depths: dict[Branch, list[int]] = {}
        for branch, depth in sorted(self._calls, key=lambda place: place[1]):
            self._depths.setdefault(branch, []).append(depth)
        self._last: dict[Branch | None, Place | None] = {None: None}

    def nearest(self, place: Place) -> Candidates:
        """Return the calls that end nearest before a place, or at it."""
        branch, depth = place
        depths = self._depths.get(branch, [])
        index = bisect_right(depths, depth)
        end = (branch, depths[index - 1]) if index else self._last_end(branch.parent)
        return NO_CANDIDATES if end is None else self._calls[end]

    def _last_end(self, branch: Branch | None) -> Place | None:
        """Return the last end in a branch or above it. Each branch is walked once, then remembered."""
        passed = []
        while branch not in self._last and branch not in self._depths and branch is not None:
            passed.append(branch)
            branch = branch.parent
        depths = None if branch is None else self._depths.get(branch)
        end = self._last[branch] if branch is None or depths is None else (branch, depths[-1])
        self._last.update(dict.fromkeys(passed, end))
        return end


def _node_by_ids(call: StoredCall, first: str, candidates: Candidates) -> Node:
    """Return a call's node as its ids place it; `first` is the first call with its prompt ids."""
    parent = candidates.choose(call)
    name = None if parent is None else parent.name
    kind, of = EdgeKind.UNRELATED if parent is None else EdgeKind.CONTINUES, name
    if first != call.name:
        kind, of = EdgeKind.RETRIES, first
    return Node(call=call, parent=name, kind=kind, of=of, rivals=candidates.names)


def _find_rewrites(nodes: Sequence[Node]) -> list[Node]:
    """Mark the nodes whose messages continue a call that their ids do not."""
    lengths = {node.name: node.call.step.messages.length for node in nodes} | {None: 0}
    # Only a prompt with an assistant's message that its parent does not have can be a rewrite.
    # Comparing messages costs far more than comparing ids, so all other nodes are left alone.
    unexplained = {
        node.name
        for node in nodes
        if node.kind is not EdgeKind.RETRIES
        and any(one["role"] == "assistant" for one in node.call.step.prompt[lengths[node.parent] :])
    }
    if not unexplained:
        return list(nodes)
    histories = MessageTrie(node.call for node in nodes)
    return [
        _as_rewrite(node, histories, lengths[node.parent]) if node.name in unexplained else node
        for node in nodes
    ]


def _as_rewrite(node: Node, histories: MessageTrie, known: int) -> Node:
    """Return a node as a rewrite where a history explains more messages than the parent's `known`."""
    candidates = histories.longest(node.call)
    rewritten = candidates.choose(node.call)
    if rewritten is None or rewritten.step.messages.length <= known:
        return node
    forgiven = PromptMatcher(node.call.step.prompt, NOTHING).fits(rewritten.step.messages)
    return attrs.evolve(
        node, kind=EdgeKind.REWRITES, of=rewritten.name, rivals=candidates.names, forgiven=forgiven or NOTHING
    )


def _find_compactions(nodes: Sequence[Node]) -> list[Node]:
    """Mark the nodes that restate an earlier call, among those that nothing else explains."""
    if not any(node.kind is EdgeKind.UNRELATED for node in nodes[1:]):
        return list(nodes)
    index = TurnIndex(node.call for node in nodes)
    found = list(nodes)
    for place, node in enumerate(nodes):
        call = index.compacted(node.call) if node.kind is EdgeKind.UNRELATED else None
        if call is not None:
            found[place] = attrs.evolve(node, kind=EdgeKind.COMPACTS, of=call.name)
    return found
