"""The order in which calls are given does not change the forest or its rows.

All at once or one by one, shared or in lists of their own: the forest is the same, and so are its rows.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import tries
from tito_core import Step
from tito_core.samples.call import StoredCall
from tito_core.samples.forest import Forest
from tito_core.samples.rows import make_rows
from tito_core.testing.strategies.stored_call import CALLS, OPTIONS


@given(CALLS, st.randoms(use_true_random=False), OPTIONS)
@tries(2)
def test_the_order_of_arrival_does_not_matter(calls: list[StoredCall], random: Any, options: Any) -> None:
    forest, shuffled = Forest.of(calls), list(calls)
    random.shuffle(shuffled)
    again = Forest.of(shuffled)
    assert again == forest
    assert again.leaves == forest.leaves
    assert again.trees == forest.trees
    assert make_rows(again, options) == make_rows(forest, options)


@given(CALLS, st.integers(0, 9))
def test_calls_that_come_one_by_one_make_the_same_forest(calls: list[StoredCall], at_once: int) -> None:
    first = Forest.of(calls[:at_once])
    assert reduce(Forest.add, calls[at_once:], first) == Forest.of(calls)
    assert first.add(*calls[at_once:]) == Forest.of(calls)
    assert Forest.of(calls[:at_once]) == first


def unshared(step: Step) -> Step:
    """Return the same step, which shares nothing with any other."""
    return attrs.evolve(
        step,
        prompt=list(step.prompt),
        prompt_ids=list(step.prompt_ids),
        completion_ids=list(step.completion_ids),
    )


@given(CALLS, OPTIONS)
def test_shared_and_unshared_calls_make_the_same_forest(calls: list[StoredCall], options: Any) -> None:
    apart = [attrs.evolve(call, step=unshared(call.step)) for call in calls]
    assert Forest.of(apart) == Forest.of(calls)
    assert make_rows(Forest.of(apart), options) == make_rows(Forest.of(calls), options)


@given(CALLS)
def test_making_a_forest_changes_nothing(calls: list[StoredCall]) -> None:
    before = [(call.ids.tolist(), list(call.step.messages), call.step.ledger) for call in calls]
    make_rows(Forest.of(calls))
    assert [(call.ids.tolist(), list(call.step.messages), call.step.ledger) for call in calls] == before
