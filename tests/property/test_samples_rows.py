"""A row has a prefix of a call's ids, and everything else in it is aligned to them."""

from __future__ import annotations

from hypothesis import given

from tests import forest_oracle as oracle
from tests.profiles import tries
from tito_core.samples.call import StoredCall
from tito_core.samples.experts import MissingRow
from tito_core.samples.forest import Forest
from tito_core.samples.options import Cut, SampleOptions
from tito_core.samples.rows import make_rows
from tito_core.testing.strategies.stored_call import CALLS, OPTIONS


@given(CALLS, OPTIONS)
@tries(3)
def test_a_row_is_a_prefix_of_its_call(calls: list[StoredCall], options: SampleOptions) -> None:
    forest = Forest.of(calls)
    for row in make_rows(forest, options).rows:
        whole = oracle.ids(forest[row.name].call)
        assert row.ids.tolist() == whole[: len(row)]
        assert row.left_out == len(whole) - len(row)
        assert len(row.ids.parts()) == 1
        if options.max_length is None:
            assert row.left_out == 0


@given(CALLS, OPTIONS)
@tries(3)
def test_no_row_is_longer_than_the_maximum(calls: list[StoredCall], options: SampleOptions) -> None:
    forest = Forest.of(calls)
    for row in make_rows(forest, options).rows:
        assert len(row) <= (options.max_length or len(row))
        if row.left_out and options.cut is Cut.INSIDE:
            assert len(row) == options.max_length
        if row.left_out and options.cut is Cut.AT_TURN:
            ends = [forest[name].call.stop for name in forest.path(row.name)]
            assert len(row) == max(end for end in ends if end <= (options.max_length or 0))
            assert row.turns[-1].stop == len(row)


@given(CALLS, OPTIONS)
@tries(3)
def test_everything_by_position_is_as_long_as_the_ids(
    calls: list[StoredCall], options: SampleOptions
) -> None:
    for row in make_rows(Forest.of(calls), options).rows:
        assert len(row.ids) == len(row.loss_mask) == len(row.logprobs)
        edges = [edge for span in row.ledger for edge in (span.start, span.stop)]
        assert edges[::2] == [0, *edges[1:-1:2]]
        assert edges[-1] == len(row)
        assert all(span.start < span.stop for span in row.ledger)
        assert row.trained == sum(row.loss_mask) > 0
        assert set(row.loss_mask) <= {0, 1}


@given(CALLS, OPTIONS)
@tries(3)
def test_turns_are_the_sampled_spans(calls: list[StoredCall], options: SampleOptions) -> None:
    forest = Forest.of(calls)
    for row in make_rows(forest, options).rows:
        for turn in row.turns:
            call = forest[turn.call].call
            assert row.ids[turn.start : turn.stop] == oracle.completion_ids(call)[: turn.stop - turn.start]
            assert set(row.loss_mask[turn.start : turn.stop]) == {int(turn.trained)}
            assert (turn.finish_reason, turn.ending) == (call.finish_reason, call.ending)
        marked = [place for place, bit in enumerate(row.loss_mask) if bit]
        assert marked == [p for turn in row.turns if turn.trained for p in range(turn.start, turn.stop)]
        assert dict(row.metadata) == dict(forest[row.name].call.metadata)


@given(CALLS, OPTIONS)
@tries(3)
def test_a_logprob_is_the_engines_or_none(calls: list[StoredCall], options: SampleOptions) -> None:
    forest = Forest.of(calls)
    for row in make_rows(forest, options).rows:
        expected: list[float | None] = [None] * len(row)
        for turn in row.turns:
            logprobs = forest[turn.call].call.step.logprobs
            if logprobs is not None:
                expected[turn.start : turn.stop] = logprobs[: turn.stop - turn.start]
        assert list(row.logprobs) == expected


@given(CALLS, OPTIONS)
@tries(3)
def test_a_sampling_mask_stands_at_its_ids_and_nowhere_else(
    calls: list[StoredCall], options: SampleOptions
) -> None:
    forest = Forest.of(calls)
    for row in make_rows(forest, options).rows:
        expected: list[list[int]] = [[] for _ in row.ids]
        masks = [forest[turn.call].call.step.sampling_mask for turn in row.turns]
        for turn, mask in zip(row.turns, masks, strict=True):
            if mask is not None:
                expected[turn.start : turn.stop] = list(map(list, mask))[: turn.stop - turn.start]
        assert row.processed_logprobs == (row.sampling_mask is not None) == any(masks)
        assert list(map(list, row.sampling_mask or expected)) == expected
        assert all(not kept or one in kept for one, kept in zip(row.ids, expected, strict=True))


@given(CALLS, OPTIONS)
@tries(3)
def test_routed_experts_stand_at_their_ids(calls: list[StoredCall], options: SampleOptions) -> None:
    """A valid row is one that a call sent for its position, and each position with a route is valid."""
    forest = Forest.of(calls)
    for row in make_rows(forest, options).rows:
        sent = [forest[name].call.routed_experts for name in forest.path(row.name)]
        assert (row.experts is None) == (not any(one is not None for one in sent))
        if row.experts is None:
            continue
        positions = row.experts.shape[0]
        assert len(row.experts.data) == positions * 2
        assert positions == len(row) or options.missing_row is MissingRow.SHORTER
        covered = {place for start, stop in row.experts.valid for place in range(start, stop)}
        known: dict[int, set[bytes]] = {}
        for call in (forest[name].call for name in forest.path(row.name)):
            one, passed = call.routed_experts, call.stop - (call.start < call.stop)
            if one is not None:
                for place in range(one.start, min(one.stop, passed, len(row))):
                    known.setdefault(place, set()).add(bytes(one.between(place, place + 1)))
        routes = {place: rows - {bytes(2)} for place, rows in known.items() if rows - {bytes(2)}}
        assert set(routes) == covered
        assert all(row.experts.data[2 * place : 2 * place + 2] in routes[place] for place in covered)
