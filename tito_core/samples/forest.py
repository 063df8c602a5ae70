"""Every call is a node, none is lost, and none is attached by luck.

A call's parent is the longest other call whose prompt and completion ids, all of them, begin the call's
prompt ids. Whatever a template inserted between the two, a close above all, is part of the rest. A call that
sampled nothing is nobody's parent: its ids are a prompt's, and prove nothing. So a parent has fewer ids than
its children, and there is no cycle. Of calls with the very same ids the latest that precedes the child by its
key is taken, or the first after it where none precedes; the node's `rivals` names them all.

What comes out depends on the calls and not on the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import attrs

from ..errors import InputError
from .call import StoredCall
from .lineage import related
from .node import Node


@attrs.frozen(repr=False)
class Forest:
    """Calls as trees. Made by `Forest.of`; costs what is new in each call that shares its history.

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

    nodes: tuple[Node, ...] = ()
    """All calls by their key."""
    children: Mapping[str, tuple[str, ...]] = attrs.field(init=False, eq=False)
    """The calls that continue each call, by their key."""
    _named: Mapping[str, Node] = attrs.field(init=False, eq=False)

    @children.default
    def _grown(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            if node.parent is not None:
                found[node.parent].append(node.name)
        return {name: tuple(names) for name, names in found.items()}

    @_named.default
    def _by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    @classmethod
    def of(cls, calls: Iterable[StoredCall]) -> Forest:
        """Make the forest of calls in any order; raises `InputError` where two have one name."""
        return cls(related(_sorted(calls)))

    def add(self, *calls: StoredCall) -> Forest:
        """Return the forest of these calls and `calls`, the same as if all had come at once."""
        return Forest.of([*self.calls, *calls])

    @property
    def calls(self) -> tuple[StoredCall, ...]:
        """All calls by their key."""
        return tuple(node.call for node in self.nodes)

    @property
    def roots(self) -> tuple[str, ...]:
        """The calls that continue none."""
        return tuple(node.name for node in self.nodes if node.parent is None)

    @property
    def leaves(self) -> tuple[str, ...]:
        """The calls that none continues."""
        return tuple(node.name for node in self.nodes if not self.children[node.name])

    @property
    def trees(self) -> tuple[tuple[str, ...], ...]:
        """The calls that hang together, by whatever kind: what is known to be one conversation."""
        found: dict[str, list[str]] = {}
        heads = _heads(self.nodes)
        for node in self.nodes:
            found.setdefault(heads[node.name], []).append(node.name)
        return tuple(map(tuple, found.values()))

    def path(self, name: str) -> tuple[str, ...]:
        """Return the calls that a call's ids are made of, from its root to itself."""
        found = [self[name].name]
        while (parent := self[found[-1]].parent) is not None:
            found.append(parent)
        return tuple(found[::-1])

    def __getitem__(self, name: str) -> Node:
        found = self._named.get(name)
        if found is None:
            raise InputError(f"{name!r:.60} is none of {len(self.nodes)} calls: give a call's name")
        return found

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Forest({len(self.nodes)} calls, {len(self.roots)} roots, {len(self.leaves)} leaves)"


def _sorted(calls: Iterable[StoredCall]) -> list[StoredCall]:
    """Return the calls by their key, each once."""
    found = list(calls)
    for call in found:
        if not isinstance(call, StoredCall):
            raise InputError(f"a forest holds calls, not {type(call).__name__}: Call(name=..., step=step)")
    names = {call.name for call in found}
    if len(names) < len(found):
        twice = next(name for name in sorted(names) if sum(call.name == name for call in found) > 1)
        raise InputError(f"two calls have the name {twice!r:.60}: give each call its own")
    return sorted(found, key=attrgetter("key"))


def _heads(nodes: Sequence[Node]) -> dict[str, str]:
    """Return for each call the first one of its tree."""
    rank = {node.name: index for index, node in enumerate(nodes)}
    heads = {node.name: node.name for node in nodes}

    def head(name: str) -> str:
        while heads[name] != name:
            heads[name] = heads[heads[name]]
            name = heads[name]
        return name

    for node in nodes:
        for other in (node.parent, node.of):
            if other is not None:
                first, second = sorted((head(node.name), head(other)), key=rank.__getitem__)
                heads[second] = first
    return {node.name: head(node.name) for node in nodes}
