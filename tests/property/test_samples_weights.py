"""The weights of a conversation's rows sum to one, and do not depend on how it was split into rows.

Every id that trains has the same share of its conversation.
"""

from __future__ import annotations

from collections import defaultdict

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import tries
from tito_core.samples.call import StoredCall
from tito_core.samples.forest import Forest
from tito_core.samples.options import ConversationScope, Owner, RowPer, SampleOptions
from tito_core.samples.row import Row
from tito_core.samples.rows import make_rows
from tito_core.testing.strategies.stored_call import CALLS, OPTIONS


def unit(row: Row, options: SampleOptions) -> str:
    return row.tree if options.conversation is ConversationScope.TREE else ""


@given(CALLS, OPTIONS)
@tries(3)
def test_weights_of_a_conversation_sum_to_one(calls: list[StoredCall], options: SampleOptions) -> None:
    forest = Forest.of(calls)
    sums: dict[str, float] = defaultdict(float)
    for row in make_rows(forest, options).rows:
        sums[unit(row, options)] += row.weight
        assert row.weight > 0
        assert row.tree == next(tree[0] for tree in forest.trees if row.name in tree)
    assert list(sums.values()) == pytest.approx([1.0] * len(sums))


@given(CALLS, OPTIONS)
@tries(3)
def test_weights_of_turns_are_shares_of_their_row(calls: list[StoredCall], options: SampleOptions) -> None:
    for row in make_rows(Forest.of(calls), options).rows:
        assert sum(turn.weight for turn in row.turns) == pytest.approx(row.weight)
        assert all((turn.weight > 0) == turn.trained for turn in row.turns)
        share = row.weight / row.trained
        trained = [turn for turn in row.turns if turn.trained]
        assert [turn.weight for turn in trained] == pytest.approx(
            [share * (t.stop - t.start) for t in trained]
        )


@given(CALLS, OPTIONS, st.sampled_from(Owner), st.sampled_from(RowPer))
@tries(3)
def test_the_weight_of_an_id_does_not_depend_on_the_split(
    calls: list[StoredCall], options: SampleOptions, owner: Owner, rows: RowPer
) -> None:
    forest, whole = Forest.of(calls), attrs.evolve(options, max_length=None)
    other = attrs.evolve(whole, owner=owner, rows=rows)
    assert shares(forest, whole) == pytest.approx(shares(forest, other))


def shares(forest: Forest, options: SampleOptions) -> dict[tuple[str, int], float]:
    """Return what each id counts: its row's weight over the row's trained ids."""
    return {
        (turn.call, place): row.weight / row.trained
        for row in make_rows(forest, options).rows
        for turn in row.turns
        if turn.trained
        for place in range(turn.start, turn.stop)
    }
