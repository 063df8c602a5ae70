"""Forests: all calls of a rollout as trees, by which call's ids each prompt continues.

A call's parent is the longest other call whose prompt and completion ids, all of them, begin the call's
prompt ids. The rest of the prompt ids may begin with a close that was inserted.
A call that sampled nothing is never a parent, because its ids are only a prompt.
A parent therefore has fewer ids than its children, and there is no cycle.

Where several calls have the same ids, the latest before the child by key is the parent.
Where none is before the child, the first after it is. The node's `rivals` names them all.
The result depends on the calls, not on the order in which they are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import attrs

from ..checks import require
from ..errors import InputError
from .call import StoredCall
from .lineage import make_nodes
from .node import Node


def _to_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    # A converter, not a validator: the other fields are computed from the nodes before validators run.
    require(nodes, (tuple, list), "nodes", "a list of Node, or make the forest with Forest.of([...])")
    for index, node in enumerate(nodes):
        require(node, Node, f"nodes[{index}]", "a Node, or make the forest with Forest.of([...])")
    return tuple(nodes)


@attrs.frozen(repr=False)
class Forest:
    """Calls as trees; make one with `Forest.of`.

    Attributes:
        nodes: One node per call, sorted by the calls' keys.
        children: For each call, the names of the calls that continue it, sorted by key.
        calls: All calls, sorted by key.
        roots: Names of the calls without a parent.
        leaves: Names of the calls without children.
        trees: Names of the calls that are connected by any kind of edge: one conversation each.

    Raises:
        InputError: A value has the wrong type. Two calls have one name, or a name that is looked up is
            unknown.

    >>> from tito_core import Step
    >>> def call(name, prompt_ids, completion_ids):
    ...     return StoredCall(name=name, step=Step(prompt=[], completion=[], prompt_ids=prompt_ids,
    ...                                      completion_ids=completion_ids))
    >>> forest = Forest.of([call("c", [1, 2, 3], [5]), call("a", [1], [2]), call("b", [1, 2, 3], [6]),
    ...                     call("d", [9], [9])])
    >>> for node in forest.nodes:
    ...     print(node.name, node.parent, node.kind.name, node.of)
    a None UNRELATED None
    b a CONTINUES a
    c a RETRIES b
    d None UNRELATED None
    >>> forest.leaves, forest.path("c"), forest.trees
    (('b', 'c', 'd'), ('a', 'c'), (('a', 'b', 'c'), ('d',)))
    """

    nodes: tuple[Node, ...] = attrs.field(default=(), converter=_to_nodes)
    children: Mapping[str, tuple[str, ...]] = attrs.field(init=False, eq=False)
    _by_name: Mapping[str, Node] = attrs.field(init=False, eq=False)

    @children.default
    def _list_children(self) -> Mapping[str, tuple[str, ...]]:
        children: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            if node.parent is not None:
                children[node.parent].append(node.name)
        return {name: tuple(names) for name, names in children.items()}

    @_by_name.default
    def _index(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    @classmethod
    def of(cls, calls: Iterable[StoredCall]) -> Forest:
        """Make the forest of `calls`, given in any order."""
        return cls(make_nodes(_sorted(calls)))

    def add(self, *calls: StoredCall) -> Forest:
        """Return the forest of these calls and `calls`, the same as if all were given at once."""
        return Forest.of([*self.calls, *calls])

    @property
    def calls(self) -> tuple[StoredCall, ...]:
        """All calls, sorted by key."""
        return tuple(node.call for node in self.nodes)

    @property
    def roots(self) -> tuple[str, ...]:
        """Names of the calls without a parent."""
        return tuple(node.name for node in self.nodes if node.parent is None)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Names of the calls without children."""
        return tuple(node.name for node in self.nodes if not self.children[node.name])

    @property
    def trees(self) -> tuple[tuple[str, ...], ...]:
        """Names of the calls that are connected by any kind of edge: one conversation each."""
        trees: dict[str, list[str]] = {}
        heads = _heads(self.nodes)
        for node in self.nodes:
            trees.setdefault(heads[node.name], []).append(node.name)
        return tuple(map(tuple, trees.values()))

    def path(self, name: str) -> tuple[str, ...]:
        """Return the names of the calls from the root to the call `name`, along parents."""
        names = [self[name].name]
        while (parent := self[names[-1]].parent) is not None:
            names.append(parent)
        return tuple(names[::-1])

    def __getitem__(self, name: str) -> Node:
        node = self._by_name.get(name)
        if node is None:
            raise InputError(
                f"no call is named {name!r:.60} among {len(self.nodes)} calls: give a call's name"
            )
        return node

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Forest({len(self.nodes)} calls, {len(self.roots)} roots, {len(self.leaves)} leaves)"


def _sorted(calls: Iterable[StoredCall]) -> list[StoredCall]:
    """Return the calls sorted by key, or raise where one is not a call or a name repeats."""
    require(calls, Iterable, "calls", "a list of StoredCall, as in Forest.of([call])")
    unsorted = list(calls)
    for call in unsorted:
        if not isinstance(call, StoredCall):
            raise InputError(
                f"a forest holds calls, not {type(call).__name__}: give StoredCall(name=..., step=step)"
            )
    names = {call.name for call in unsorted}
    if len(names) < len(unsorted):
        repeated = next(name for name in sorted(names) if sum(call.name == name for call in unsorted) > 1)
        raise InputError(f"two calls have the name {repeated!r:.60}: give each call its own")
    return sorted(unsorted, key=attrgetter("key"))


def _heads(nodes: Sequence[Node]) -> dict[str, str]:
    """Return for each call the first call of its tree, by union-find over all edges."""
    rank = {node.name: index for index, node in enumerate(nodes)}
    heads = {node.name: node.name for node in nodes}

    def head(name: str) -> str:
        while heads[name] != name:
            heads[name] = heads[heads[name]]
            name = heads[name]
        return name

    # `of` joins what ids do not: a conversation goes on over a rewrite, a retry or a compaction.
    for node in nodes:
        for other in (node.parent, node.of):
            if other is not None:
                first, second = sorted((head(node.name), head(other)), key=rank.__getitem__)
                heads[second] = first
    return {node.name: head(node.name) for node in nodes}
