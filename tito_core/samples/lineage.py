"""How each call came about: first by ids, which are the truth, then by messages, which explain."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import starmap

import attrs

from ..match import NOTHING, PromptMatcher
from ..message import Messages
from .call import StoredCall
from .node import EdgeKind, Node
from .restated import Quoted, Retold
from .ties import NOBODY, Candidates
from .trie import Branch, Place, Trie, settled


def related(calls: Sequence[StoredCall]) -> tuple[Node, ...]:
    """Return the node of each call; `calls` come by their key."""
    trie = Trie()
    ends = [trie.place(call.ids) for call in calls]
    starts = list(map(settled, [trie.place(call.step.prompt_ids) for call in calls]))
    before = map(Ended(zip(calls, ends, strict=True)).before, starts)
    nodes = list(starmap(_by_ids, zip(calls, _firsts(calls, starts), before, strict=True)))
    return tuple(_by_quotation(_by_messages(nodes)))


class Ended:
    """The places where calls end that sampled something."""

    def __init__(self, ends: Iterable[tuple[StoredCall, Place]]) -> None:
        """Hold the calls by the places of their last ids."""
        self._calls: dict[Place, Candidates] = {}
        for call, end in ends:
            if call.start < call.stop:
                self._calls.setdefault(settled(end), Candidates()).add(call)
        self._depths: dict[Branch, list[int]] = {}
        for branch, depth in sorted(self._calls, key=lambda place: place[1]):
            self._depths.setdefault(branch, []).append(depth)
        self._last: dict[Branch | None, Place | None] = {None: None}

    def before(self, place: Place) -> Candidates:
        """Return the calls that end nearest before a place, or at it."""
        branch, depth = place
        depths = self._depths.get(branch, [])
        index = bisect_right(depths, depth)
        found = (branch, depths[index - 1]) if index else self._last_of(branch.older)
        return NOBODY if found is None else self._calls[found]

    def _last_of(self, branch: Branch | None) -> Place | None:
        """Return the last end in a branch or before it; each branch is walked over once."""
        passed = []
        while branch not in self._last and branch not in self._depths and branch is not None:
            passed.append(branch)
            branch = branch.older
        depths = None if branch is None else self._depths.get(branch)
        found = self._last[branch] if branch is None or depths is None else (branch, depths[-1])
        self._last.update(dict.fromkeys(passed, found))
        return found


def _firsts(calls: Sequence[StoredCall], starts: Sequence[Place]) -> list[str]:
    """Return for each call the first one with the same prompt ids; without ids each is its own."""
    seen: dict[Place, str] = {}
    return [
        seen.setdefault(start, call.name) if call.start else call.name
        for call, start in zip(calls, starts, strict=True)
    ]


def _by_ids(call: StoredCall, first: str, candidates: Candidates) -> Node:
    """Place a call by its ids."""
    parent = candidates.chosen(call)
    above = None if parent is None else parent.name
    if first != call.name:
        return Node(call=call, parent=above, kind=EdgeKind.RETRIES, of=first, rivals=candidates.names)
    kind = EdgeKind.UNRELATED if parent is None else EdgeKind.CONTINUES
    return Node(call=call, parent=above, kind=kind, of=above, rivals=candidates.names)


def _by_messages(nodes: Sequence[Node]) -> list[Node]:
    """Find the nodes that go on from a call whose ids they do not have."""
    lengths = {node.name: node.call.step.messages.length for node in nodes} | {None: 0}
    unexplained = {node.name for node in nodes if _unexplained(node, lengths[node.parent])}
    if not unexplained:
        return list(nodes)
    retold = Retold(node.call for node in nodes)
    return [
        _rewriting(node, retold.longest(node.call), lengths[node.parent])
        if node.name in unexplained
        else node
        for node in nodes
    ]


def _unexplained(node: Node, known: int) -> bool:
    """Tell whether the prompt has an assistant's message after the `known` ones of its parent."""
    return node.kind is not EdgeKind.RETRIES and "assistant" in roles(node.call.step.prompt, known)


def roles(messages: Messages, start: int) -> set[str]:
    """Return which roles speak from a position on, touching no message before it.

    >>> roles(Messages.of([{"role": "user"}]).then([{"role": "assistant"}, {"role": "tool"}]), 2)
    {'tool'}
    """
    found: set[str] = set()
    for link in messages.links():
        if link.length <= start:
            break
        first = link.length - len(link.part)
        found |= {message["role"] for message in link.part[max(start - first, 0) :]}
    return found


def _rewriting(node: Node, candidates: Candidates, known: int) -> Node:
    """Say that a node rewrites where more messages are told again than its parent has."""
    told = candidates.chosen(node.call)
    if told is None or told.step.messages.length <= known:
        return node
    forgiven = PromptMatcher(node.call.step.prompt, NOTHING).fits(told.step.messages)
    return attrs.evolve(
        node, kind=EdgeKind.REWRITES, of=told.name, rivals=candidates.names, forgiven=forgiven or NOTHING
    )


def _by_quotation(nodes: Sequence[Node]) -> list[Node]:
    """Find the nodes that restate an earlier call, among those that nothing else explains."""
    if not any(node.kind is EdgeKind.UNRELATED for node in nodes[1:]):
        return list(nodes)
    quoted = Quoted(node.call for node in nodes)
    return [_compacting(node, quoted) if node.kind is EdgeKind.UNRELATED else node for node in nodes]


def _compacting(node: Node, quoted: Quoted) -> Node:
    compacted = quoted.compacted(node.call)
    if compacted is None:
        return node
    return attrs.evolve(node, kind=EdgeKind.COMPACTS, of=compacted.name)
