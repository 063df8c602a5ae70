"""A discounted reward is the broadcast one times the discount to the power of the turns sampled later.

It does not depend on the options that say which rows there are, and which of them train a turn.
"""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import tries
from tito_core.samples.call import StoredCall
from tito_core.samples.forest import Forest
from tito_core.samples.options import ConversationScope, Rewards, RowPer, SampleOptions
from tito_core.samples.rows import make_rows
from tito_core.testing.strategies.stored_call import CALLS, OPTIONS

DISCOUNTS = st.sampled_from((0, 0.25, 0.9, 1))


def in_time(calls: list[StoredCall]) -> list[StoredCall]:
    """Return the calls with an order for each, as the discount needs it."""
    return [attrs.evolve(call, order=place) for place, call in enumerate(calls)]


@given(CALLS, OPTIONS, DISCOUNTS)
@tries(3)
def test_a_reward_is_discounted_once_per_later_turn(
    calls: list[StoredCall], options: SampleOptions, discount: float
) -> None:
    forest = Forest.of(in_time(calls))
    whole = attrs.evolve(options, rewards=Rewards.BROADCAST)
    discounted = attrs.evolve(options, rewards=Rewards.DISCOUNTED, discount=discount)
    trees = {name: tree for tree in forest.trees for name in tree}
    for row, undiscounted in zip(
        make_rows(forest, discounted).rows, make_rows(forest, whole).rows, strict=True
    ):
        whole_forest = options.conversation is ConversationScope.FOREST
        unit = forest.calls if whole_forest else [forest[name].call for name in trees[row.name]]
        later = sum(
            len(one.step.completion_ids) > 0 and one.order > forest[row.name].call.order for one in unit
        )
        assert attrs.evolve(row, reward=None) == attrs.evolve(undiscounted, reward=None)
        if undiscounted.reward is None:
            assert row.reward is None
        else:
            assert row.reward == pytest.approx(undiscounted.reward * discount**later)


@given(CALLS, DISCOUNTS)
@tries(3)
def test_each_turn_has_the_discounted_reward_of_the_next_one(
    calls: list[StoredCall], discount: float
) -> None:
    """The last turn has the reward in full; with the discount 1 all have."""
    rewarded = [attrs.evolve(call, reward=2.0) for call in in_time(calls)]
    options = SampleOptions(rows=RowPer.CALL, rewards=Rewards.DISCOUNTED, discount=discount)
    rewards = [row.reward for row in make_rows(Forest.of(rewarded), options).rows]
    expected = [2.0 * discount**turns for turns in range(len(rewards))]
    assert rewards[::-1] == pytest.approx(expected)
