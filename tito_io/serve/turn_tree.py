"""Turns in the order of a page: a straight chain stands at one level, and only side branches are indented."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import attrs

from tito_core.samples import Forest
from tito_core.samples.node import EdgeKind, Node


@attrs.frozen
class TreeTurn:
    """A turn of a chain.

    Attributes:
        name: The turn's name.
        branches: Chains that continue this turn beside the one in which it stands.
    """

    name: str
    branches: tuple[tuple[TreeTurn, ...], ...]


@attrs.frozen(kw_only=True)
class TurnTree:
    """The turns of a forest, each below the one whose conversation it continues.

    Attributes:
        numbers: The number of each turn, from 1 in the order of their commits.
        above: The turn that each turn continues, by its ids or its messages; None where it continues none.
        below: The turns that continue each turn; those that continue none are below None.
    """

    numbers: Mapping[str, int]
    above: dict[str, str | None]
    below: Mapping[str | None, list[str]]

    @classmethod
    def of(cls, forest: Forest) -> Self:
        """Return the tree of a forest."""
        numbers = {node.name: number for number, node in enumerate(forest.nodes, 1)}
        above = {node.name: _above(node, numbers) for node in forest.nodes}
        below: dict[str | None, list[str]] = {name: [] for name in (None, *numbers)}
        for name, other in above.items():
            below[other].append(name)
        return cls(numbers=numbers, above=above, below=below)

    def leaves(self) -> dict[str, int]:
        """Return the turns that no turn continues, each with how many turns its conversation has."""
        lengths: dict[str | None, int] = {None: 0}
        for name, other in self.above.items():  # a turn stands after the one that it continues
            lengths[name] = lengths[other] + 1
        return {name: lengths[name] for name in self.numbers if not self.below[name]}

    def chains(self, leaf: str | None) -> list[tuple[TreeTurn, ...]]:
        """Return the chain of each first turn; the turns up to `leaf` are in one chain.

        Elsewhere a chain goes on with the child that has the most turns below it. So branches nest at most
        log2(turns) deep, however often a session forks.
        """
        sizes = dict.fromkeys(self.numbers, 1)
        for name, other in reversed(self.above.items()):
            if other is not None:
                sizes[other] += sizes[name]
        while leaf is not None:
            sizes[leaf] = len(sizes) + 1
            leaf = self.above[leaf]
        return [self._chain(name, sizes) for name in self.below[None]]

    def _chain(self, name: str | None, sizes: Mapping[str, int]) -> tuple[TreeTurn, ...]:
        turns = []
        while name is not None:
            children = self.below[name]
            following = max(children, key=sizes.__getitem__, default=None)
            sides = tuple(self._chain(child, sizes) for child in children if child != following)
            turns.append(TreeTurn(name, sides))
            name = following
        return tuple(turns)


def _above(node: Node, numbers: Mapping[str, int]) -> str | None:
    """Return the turn that a turn continues: by its ids, or by its messages where those were rendered again.

    Ids and messages may contradict each other where a template drops history. The earlier turn is never below
    the later one, so that there is no cycle.
    """
    other = node.of if node.parent is None and node.kind is EdgeKind.REWRITES else node.parent
    return other if other is not None and numbers[other] < numbers[node.name] else None
