"""Each turn has its own reward, and the rewards to go of its conversation, whatever rows there are.

The reward of a row is then the sum of all, once per rollout. Credit made of rewards to go is unbiased: its
expectation is the gradient of the expected reward, also where the policy chooses how many turns there are.
"""

from __future__ import annotations

from itertools import product

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.samples.calls import call
from tests.profiles import tries
from tito_core.samples.call import StoredCall
from tito_core.samples.forest import Forest
from tito_core.samples.options import ConversationScope, Rewards, SampleOptions
from tito_core.samples.row import Row
from tito_core.samples.rows import make_rows
from tito_core.testing.strategies.stored_call import CALLS, OPTIONS

REWARDS = st.lists(st.sampled_from((None, 0.0, 0.5, -1.0)), min_size=9, max_size=9)
PAIRS = st.sampled_from(((0.0, 1.0), (0.5, -1.0), (2.0, 0.25)))


@given(CALLS, OPTIONS, REWARDS)
@tries(3)
def test_a_turn_has_its_reward_and_those_to_go(
    calls: list[StoredCall], options: SampleOptions, rewards: list[float | None]
) -> None:
    calls = [attrs.evolve(one, reward=reward) for one, reward in zip(calls, rewards, strict=False)]
    forest = Forest.of(calls)
    trees = {name: tree for tree in forest.trees for name in tree}
    for row in make_rows(forest, attrs.evolve(options, rewards=Rewards.SUM)).rows:
        whole = options.conversation is ConversationScope.FOREST
        unit = forest.calls if whole else [forest[name].call for name in trees[row.name]]
        given_rewards = [(one.order, one.reward) for one in unit if one.reward is not None]
        assert row.reward == (sum(reward for _, reward in given_rewards) if given_rewards else None)
        for turn in row.turns:
            own = forest[turn.call].call
            later = sum(reward for order, reward in given_rewards if order >= own.order)
            assert turn.reward == own.reward
            assert turn.reward_to_go == (later if given_rewards else None)


def rollout(goes_on: bool, rewards: tuple[float, float]) -> Row:
    """Return the row of one or two turns, each with its reward."""
    calls = [call("a", [1], [int(goes_on)], reward=rewards[0], order=1)]
    if goes_on:
        calls.append(call("b", [1, 1, 2], [3], reward=rewards[1], order=2))
    [row] = make_rows(Forest.of(calls), SampleOptions(rewards=Rewards.SUM)).rows
    return row


@given(st.floats(0.05, 0.95), PAIRS, st.sampled_from((2, 3)))
@tries(1)
def test_credit_of_rewards_to_go_is_unbiased(chance: float, rewards: tuple[float, float], group: int) -> None:
    """A policy goes on to a second turn with a chance, the sigmoid of its parameter."""
    expected = 0.0
    for choices in product((False, True), repeat=group):
        rows = [rollout(goes_on, rewards) for goes_on in choices]
        likely = 1.0
        for goes_on in choices:
            likely *= chance if goes_on else 1 - chance
        for row, goes_on in zip(rows, choices, strict=True):
            others = [other.reward for other in rows if other is not row]
            baseline = sum(reward or 0.0 for reward in others) / len(others)
            credit = (row.turns[0].reward_to_go or 0.0) - baseline
            expected += likely * credit * ((1 - chance) if goes_on else -chance) / group
    assert expected == pytest.approx(chance * (1 - chance) * rewards[1])
