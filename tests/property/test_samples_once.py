"""Every sampled id of every call trains exactly once over all rows, or is reported as untrained.

No other id trains. Whichever leaves get a row, each turn that a row contains is trained by some row.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests import forest_oracle as oracle
from tests.profiles import tries
from tito_core import Origin
from tito_core.samples.call import Ending, StoredCall
from tito_core.samples.forest import Forest
from tito_core.samples.leave_out import LeaveOutReason
from tito_core.samples.options import Owner, RowPer, SampleOptions, TurnRule
from tito_core.samples.rows import RowSet, make_rows
from tito_core.testing.strategies.stored_call import CALLS, OPTIONS


def trained(row_set: RowSet) -> Counter[tuple[str, int]]:
    """Count how often each (call, position in ids) trains."""
    return Counter(
        (str(span.call), place)
        for row in row_set.rows
        for span in row.ledger
        for place in range(span.start, span.stop)
        if row.loss_mask[place]
    )


def sampled(calls: list[StoredCall]) -> set[tuple[str, int]]:
    return {(call.name, place) for call in calls for place in range(call.start, call.stop)}


def reported(row_set: RowSet, calls: list[StoredCall]) -> Counter[tuple[str, int]]:
    starts = {call.name: call.start for call in calls}
    return Counter(
        (one.call, starts[one.call] + place)
        for one in row_set.untrained
        for place in range(one.start, one.stop)
    )


@given(CALLS, st.sampled_from(Owner), st.sampled_from(RowPer))
@tries(3)
def test_by_default_every_sampled_id_trains_once(calls: list[StoredCall], owner: Owner, rows: RowPer) -> None:
    row_set = make_rows(Forest.of(calls), SampleOptions(owner=owner, rows=rows))
    assert trained(row_set) == Counter(sampled(calls))
    assert row_set.untrained == ()


@given(CALLS, OPTIONS, st.randoms(use_true_random=False))
@tries(5)
def test_with_any_options_an_id_trains_once_or_is_named(
    calls: list[StoredCall], options: Any, random: Any
) -> None:
    forest = Forest.of(calls)
    names = forest.leaves if options.rows is RowPer.LEAF else [call.name for call in calls]
    leaves = {row.name for row in oracle.drafts(calls, options, None)}
    only = random.choice((None, [name for name in names if name in leaves and random.random() < 0.6]))
    row_set = make_rows(forest, options, only=only)
    assert trained(row_set) + reported(row_set, calls) == Counter(sampled(calls))
    assert set(trained(row_set)) | set(reported(row_set, calls)) == sampled(calls)


@given(CALLS, OPTIONS, st.data())
@tries(3)
def test_ids_of_a_dropped_leaf_train_in_a_row_that_has_them(
    calls: list[StoredCall], options: SampleOptions, data: st.DataObject
) -> None:
    forest = Forest.of(calls)
    leaves = [row.name for row in oracle.drafts(calls, options, None)]
    only = data.draw(st.sets(st.sampled_from(leaves))) if leaves else set()
    row_set = make_rows(forest, options, only=only)
    assert {row.name for row in row_set.rows} | set(row_set.without_row) == only
    done = trained(row_set)
    for row in row_set.rows if options.rows is RowPer.LEAF else ():
        for turn in row.turns:
            masked = options.rule(turn.ending) is TurnRule.MASK
            assert masked or all(done[turn.call, place] for place in range(turn.start, turn.stop))
    for one in row_set.untrained:
        assert one.why is not LeaveOutReason.NOT_ASKED_FOR or len(only) < len(leaves)


@given(CALLS, OPTIONS)
@tries(3)
def test_nothing_but_what_was_sampled_trains(calls: list[StoredCall], options: SampleOptions) -> None:
    forest = Forest.of(calls)
    for row in make_rows(forest, options).rows:
        for span in row.ledger:
            bits = set(row.loss_mask[span.start : span.stop])
            assert bits == {int(span.trained)}
            if span.trained:
                assert span.origin is Origin.SAMPLED
                assert span.call is not None
                assert forest[span.call].call.start <= span.start < span.stop <= forest[span.call].call.stop


@given(CALLS, OPTIONS)
@tries(3)
def test_every_untrained_turn_has_a_reason(calls: list[StoredCall], options: SampleOptions) -> None:
    forest = Forest.of(calls)
    for one in make_rows(forest, options).untrained:
        call = forest[one.call].call
        rules = {options.rule(forest[above].call.ending) for above in forest.path(one.call)}
        above = {options.rule(forest[above].call.ending) for above in forest.path(one.call)[:-1]}
        assert one.why is not LeaveOutReason.DROPPED or TurnRule.DROP in rules
        assert one.why is not LeaveOutReason.AFTER_END or TurnRule.END in above
        assert one.why is not LeaveOutReason.MASKED or options.rule(call.ending) is TurnRule.MASK
        assert one.why is not LeaveOutReason.RETRIED or options.retries.name != "ALL"
        assert one.why is not LeaveOutReason.TOO_LONG or call.stop > (options.max_length or call.stop)
        assert one.why is not LeaveOutReason.NOT_ASKED_FOR
        assert call.ending is not Ending.EMPTY
