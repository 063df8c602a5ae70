"""Every call is a node of the forest, under the parent that the slow oracle finds.

A call's parent is the longest other call that sampled something and whose ids, all of them, begin its prompt.
"""

from __future__ import annotations

from hypothesis import given

from tests import forest_oracle as oracle
from tests.profiles import tries
from tito_core.samples.call import StoredCall
from tito_core.samples.forest import Forest
from tito_core.samples.node import EdgeKind
from tito_core.testing.strategies.stored_call import CALLS


@given(CALLS)
@tries(2)
def test_every_call_is_a_node_once(calls: list[StoredCall]) -> None:
    forest = Forest.of(calls)
    assert [node.call for node in forest.nodes] == oracle.by_key(calls)
    assert len(forest) == len(calls)
    assert [forest[call.name].call is call for call in calls] == [True] * len(calls)
    assert sorted(name for tree in forest.trees for name in tree) == sorted(call.name for call in calls)
    assert {name for leaf in forest.leaves for name in forest.path(leaf)} == {call.name for call in calls}


@given(CALLS)
@tries(5)
def test_a_parent_is_the_longest_call_that_begins_the_prompt(calls: list[StoredCall]) -> None:
    forest = Forest.of(calls)
    for call in calls:
        expected = oracle.taken(oracle.parents(call, calls), call)
        assert forest[call.name].parent == (None if expected is None else expected.name)


@given(CALLS)
@tries(5)
def test_the_lineage_of_a_call_is_that_of_comparing_all_pairs(calls: list[StoredCall]) -> None:
    forest = Forest.of(calls)
    for call in calls:
        node = forest[call.name]
        assert (node.kind.name, node.of, node.rivals) == oracle.kind(call, calls)
        assert node.kind is not EdgeKind.CONTINUES or node.of == node.parent
        assert not node.forgiven or node.kind is EdgeKind.REWRITES


@given(CALLS)
@tries(2)
def test_children_paths_and_trees_are_what_the_parents_say(calls: list[StoredCall]) -> None:
    forest = Forest.of(calls)
    for call in calls:
        assert list(forest.path(call.name)) == [one.name for one in oracle.path(call, calls)]
        children = [node.name for node in forest.nodes if node.parent == call.name]
        assert list(forest.children[call.name]) == children
        assert (call.name in forest.leaves) == (not children)
        [tree] = [tree for tree in forest.trees if call.name in tree]
        assert set(tree) == oracle.tree(call, calls)
        assert list(tree) == [one.name for one in oracle.by_key(calls) if one.name in tree]
