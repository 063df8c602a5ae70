"""Rows by example: which row trains a turn, where rows end, rewards and weights."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.core.samples.calls import call
from tests.core.samples.row_sets import CHAIN, FORK, ROOT, missing, shown
from tito_core import InputError, Trajectory
from tito_core.samples.forest import Forest
from tito_core.samples.options import (
    ConversationScope,
    Cut,
    Owner,
    Rewards,
    RowPer,
    SampleOptions,
)
from tito_core.samples.rows import RowSet, make_rows


@pytest.mark.parametrize("wrong", [None, [ROOT], ROOT, ROOT.step, Trajectory([ROOT.step])])
def test_rows_are_made_of_a_forest(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"^forest is .*: give a Forest: Forest\.of\(\[\.\.\.\]\)$"):
        make_rows(wrong)


def test_options_of_rows_are_sample_options() -> None:
    options: Any = {"max_length": 4}
    with pytest.raises(InputError, match=r"^options is .*: give SampleOptions"):
        make_rows(FORK, options)


def test_what_an_unwanted_leaf_owned_moves() -> None:
    row_set = make_rows(FORK, only=["c"])
    assert shown(row_set) == {"c": "1 [2] [3] 6 [7] [8]"}
    assert missing(row_set) == [("b", 0, 1, "NOT_ASKED_FOR")]
    assert row_set.rows[0].weight == 1.0
    assert missing(make_rows(FORK, only=[])) == [
        ("a", 0, 2, "NOT_ASKED_FOR"),
        ("b", 0, 1, "NOT_ASKED_FOR"),
        ("c", 0, 2, "NOT_ASKED_FOR"),
    ]


def test_only_names_leaves() -> None:
    with pytest.raises(InputError, match="only names 'a', which other calls continue"):
        make_rows(FORK, only=["a"])
    with pytest.raises(InputError, match="no call is named 'x' among 3 calls"):
        make_rows(FORK, only=["x"])
    assert shown(make_rows(FORK, SampleOptions(rows=RowPer.CALL), only=["a"])) == {"a": "1 [2] [3]"}


@pytest.mark.parametrize(
    ("cut", "most", "rows", "untrained"),
    [
        (Cut.AT_TURN, 8, {"c": "1 [2] [3] 4 [5] [6]"}, [("c", 0, 1, "TOO_LONG")]),
        (Cut.INSIDE, 8, {"c": "1 [2] [3] 4 [5] [6] 2 7"}, [("c", 0, 1, "TOO_LONG")]),
        (Cut.AT_TURN, 5, {"c": "1 [2] [3]"}, [("b", 0, 2, "TOO_LONG"), ("c", 0, 1, "TOO_LONG")]),
        (Cut.INSIDE, 5, {"c": "1 [2] [3] 4 [5]"}, [("b", 1, 2, "TOO_LONG"), ("c", 0, 1, "TOO_LONG")]),
        (Cut.AT_TURN, 2, {}, [("a", 0, 2, "TOO_LONG"), ("b", 0, 2, "TOO_LONG"), ("c", 0, 1, "TOO_LONG")]),
        (Cut.INSIDE, 9, {"c": "1 [2] [3] 4 [5] [6] 2 7 [8]"}, []),
    ],
)
def test_a_row_ends_at_the_maximum(cut: Cut, most: int, rows: dict[str, str], untrained: list[Any]) -> None:
    row_set = make_rows(CHAIN, SampleOptions(max_length=most, cut=cut))
    assert shown(row_set) == rows
    assert missing(row_set) == untrained
    assert [row.left_out for row in row_set.rows] == [9 - len(row) for row in row_set.rows]
    assert row_set.without_row == (() if rows else ("c",))


OTHER = call("x", [9], [9])


@pytest.mark.parametrize(
    ("options", "rewards", "weights"),
    [
        (SampleOptions(), [1.0, 1.0, 1.0], [3 / 6, 2 / 6, 1 / 6]),
        (SampleOptions(conversation=ConversationScope.TREE), [1.0, 1.0, None], [3 / 5, 2 / 5, 1.0]),
        (SampleOptions(rewards=Rewards.PER_LEAF), [None, None, None], [3 / 6, 2 / 6, 1 / 6]),
        (
            SampleOptions(rewards=Rewards.PER_LEAF, rows=RowPer.CALL),
            [1.0, None, None, None],
            [2 / 6, 1 / 6, 2 / 6, 1 / 6],
        ),
    ],
)
def test_rewards_and_weights(options: SampleOptions, rewards: list[Any], weights: list[float]) -> None:
    row_set = make_rows(FORK.add(OTHER), options)
    assert [row.reward for row in row_set.rows] == rewards
    assert [row.weight for row in row_set.rows] == pytest.approx(weights)
    assert {row.tree for row in row_set.rows} == {"a", "x"}


def test_two_rewards_are_not_one() -> None:
    forest = FORK.add(attrs.evolve(OTHER, reward=0.0))
    with pytest.raises(
        InputError, match=r"calls 'a' and 'x' of one conversation have the rewards 1\.0 and 0\.0"
    ):
        make_rows(forest)
    trees = make_rows(forest, SampleOptions(conversation=ConversationScope.TREE))
    assert [row.reward for row in trees.rows] == [1.0, 1.0, 0.0]
    leaves = make_rows(forest, SampleOptions(rewards=Rewards.PER_LEAF))
    assert [row.reward for row in leaves.rows] == [None, None, 0.0]
    assert [row.reward for row in make_rows(FORK.add(attrs.evolve(OTHER, reward=1))).rows] == [1.0, 1.0, 1.0]


def test_turns_of_equal_order_have_no_discount() -> None:
    options = SampleOptions(rewards=Rewards.DISCOUNTED, discount=0.5)
    with pytest.raises(
        InputError, match="calls 'b' and 'c' of one conversation have the order 0, and a reward is"
    ):
        make_rows(FORK, options)
    silent = call("0", [1, 2, 3, 4, 5, 8], [])  # before all turns of order 0, or after them
    with pytest.raises(InputError, match="calls '0' and 'a' of one conversation have the order 0"):
        make_rows(Forest.of([FORK.calls[0], silent]), options)
    unrewarded = Forest.of([attrs.evolve(one, reward=None) for one in FORK.calls])
    assert [row.reward for row in make_rows(unrewarded, options).rows] == [None, None]


def test_an_empty_forest_has_no_rows() -> None:
    assert make_rows(Forest.of([])) == RowSet(rows=(), untrained=(), without_row=())


def test_the_longest_branch_is_the_longest_before_it_is_cut() -> None:
    row_set = make_rows(FORK, SampleOptions(owner=Owner.LONGEST, max_length=4, cut=Cut.INSIDE))
    assert shown(row_set) == {"c": "1 [2] [3] 6"}
    assert row_set.without_row == ("b",)


def test_weights_count_the_ids_that_stay() -> None:
    row_set = make_rows(FORK, SampleOptions(max_length=5, cut=Cut.INSIDE))
    assert shown(row_set) == {"b": "1 [2] [3] 4 [5]", "c": "1 2 3 6 [7]"}
    assert [row.weight for row in row_set.rows] == [3 / 4, 1 / 4]


def test_a_discounted_reward_counts_the_turns_that_were_sampled_later() -> None:
    """The other agent's turn and the branch count, a call that sampled nothing does not."""
    empty = call("e", [1, 2, 3, 4, 5, 8], [])
    calls = [attrs.evolve(one, order=place) for place, one in enumerate([*FORK.calls, OTHER, empty])]
    options = SampleOptions(rewards=Rewards.DISCOUNTED, discount=0.5, rows=RowPer.CALL)
    per_call = {row.name: row.reward for row in make_rows(Forest.of(calls), options).rows}
    assert per_call == {"a": 0.125, "b": 0.25, "c": 0.5, "x": 1.0}
    leaves = make_rows(Forest.of(calls), attrs.evolve(options, rows=RowPer.LEAF)).rows
    assert {row.name: row.reward for row in leaves} == {"b": 0.25, "c": 0.5, "x": 1.0}
    tree = attrs.evolve(options, conversation=ConversationScope.TREE)
    per_tree = {row.name: row.reward for row in make_rows(Forest.of(calls), tree).rows}
    assert per_tree == {"a": 0.25, "b": 0.5, "c": 1.0, "x": None}
