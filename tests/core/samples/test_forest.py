"""Forests by example: branches, trees, names that repeat, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from tests.core import example
from tests.core.samples.calls import call
from tito_core import InputError
from tito_core.samples.forest import Forest


def test_no_calls_make_an_empty_forest() -> None:
    forest = Forest.of([])
    assert (len(forest), forest.nodes, forest.leaves, forest.roots, forest.trees) == (0, (), (), (), ())
    assert forest.add(call("a", [1], [2])) == Forest.of([call("a", [1], [2])])
    assert repr(Forest.of([call("a", [1], [2])])) == "Forest(1 calls, 1 roots, 1 leaves)"


def test_a_forest_refuses_what_is_no_call_and_two_of_a_name() -> None:
    calls: list[Any] = [example.step()]
    with pytest.raises(InputError, match="a forest holds calls, not Step"):
        Forest.of(calls)
    with pytest.raises(InputError, match="two calls have the name 'a'"):
        Forest.of([call("b", [1], [2]), call("a", [1], [2]), call("a", [1], [3])])
    with pytest.raises(InputError, match="no call is named 'c' among 1 calls"):
        Forest.of([call("a", [1], [2])])["c"]


@pytest.mark.parametrize("make", [Forest, Forest.of])
@pytest.mark.parametrize("wrong", [None, 5, call("a", [1], [2])])
def test_a_value_that_is_no_list_makes_no_forest(make: Any, wrong: Any) -> None:
    with pytest.raises(InputError, match=r"^(nodes|calls) is .*: give a list of .*Forest\.of\(\["):
        make(wrong)


def test_calls_are_not_nodes() -> None:
    calls: Any = [call("a", [1], [2])]
    with pytest.raises(InputError, match=r"^nodes\[0\] is .*: give a Node, .* Forest\.of\(\["):
        Forest(calls)
    nodes: Any = list(Forest.of(calls).nodes)
    assert Forest(nodes) == Forest.of(calls)


def test_a_forest_survives_a_trip_to_another_process() -> None:
    forest = Forest.of([call("a", [1], [2]), call("b", [1, 2, 3], [4])])
    for again in (pickle.loads(pickle.dumps(forest)), copy.deepcopy(forest)):  # noqa: S301  # our own bytes
        assert again == forest
        assert again.path("b") == ("a", "b")
