"""A row's sampling mask is that of its turns, cut with them; log-probabilities of two kinds never mix."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from tests.core.samples.calls import call
from tito_core import InputError, SamplingMask
from tito_core.samples import Cut, Forest, RowPer, SampleOptions, StoredCall, make_rows


def sampled(
    one: StoredCall, mask: Sequence[Sequence[int] | None] | None, logprobs: Sequence[float] | None = None
) -> StoredCall:
    kept = None if mask is None else SamplingMask.of(mask)
    return attrs.evolve(one, step=attrs.evolve(one.step, sampling_mask=kept, logprobs=logprobs))


ROOT = sampled(call("a", [1], [2, 3]), [[2, 8], [3]], [-0.5, 0.0])
LEFT = sampled(call("b", [1, 2, 3, 4], [5, 6]), [[5, 7, 9], None], [-1.0, -1.0])
RIGHT = sampled(call("c", [1, 2, 3, 9], [5]), [[5]], [0.0])


def kept(calls: Sequence[StoredCall], options: SampleOptions | None = None) -> dict[str, object]:
    rows = make_rows(Forest.of(calls), options or SampleOptions()).rows
    return {row.name: row.sampling_mask and list(map(list, row.sampling_mask)) for row in rows}


def test_branches_have_the_masks_of_the_turns_they_share() -> None:
    assert kept([ROOT, LEFT, RIGHT]) == {
        "b": [[], [2, 8], [3], [], [5, 7, 9], []],
        "c": [[], [2, 8], [3], [], [5]],
    }


def test_cutting_a_row_cuts_its_masks() -> None:
    inside = SampleOptions(max_length=2, cut=Cut.INSIDE)
    assert kept([ROOT], inside) == {"a": [[], [2, 8]]}
    assert kept([ROOT, LEFT], SampleOptions(max_length=5)) == {"b": [[], [2, 8], [3]]}


def test_a_stop_that_was_replaced_is_no_sampled_id_of_the_row() -> None:
    """The prompt has another stop in its place, so that the older turn is in a row of its own."""
    replaced = sampled(call("b", [1, 2, 33, 4], [5]), [[5, 6]])
    assert kept([ROOT, replaced]) == {"a": [[], [2, 8], [3]], "b": [[], [], [], [], [5, 6]]}


@pytest.mark.parametrize("places", [(0, 1), (1, 0)])
def test_log_probabilities_of_two_kinds_in_a_row_are_an_error(places: tuple[int, int]) -> None:
    bare = [attrs.evolve(one, step=attrs.evolve(one.step, sampling_mask=None)) for one in (ROOT, LEFT)]
    calls = [(ROOT, LEFT)[places[0]], bare[places[1]]]
    masked, other = calls[0].name, calls[1].name
    with pytest.raises(InputError, match=f"^'{masked}' has a sampling mask and '{other}' of the same row"):
        make_rows(Forest.of(calls))
    rows = make_rows(Forest.of(bare)).rows
    assert [row.processed_logprobs for row in rows] == [False]


def test_each_kind_may_have_rows_of_its_own() -> None:
    bare = attrs.evolve(ROOT, step=attrs.evolve(ROOT.step, sampling_mask=None))
    far = sampled(call("z", [7], [8]), [[8]], [0.0])
    rows = make_rows(Forest.of([bare, far])).rows
    assert [row.processed_logprobs for row in rows] == [False, True]
    assert len(make_rows(Forest.of([ROOT, LEFT]), SampleOptions(rows=RowPer.CALL)).rows) == 2


def test_a_turn_without_log_probabilities_mixes_nothing() -> None:
    silent = sampled(call("b", [1, 2, 3, 4], [5]), None)
    assert kept([ROOT, silent]) == {"b": [[], [2, 8], [3], [], []]}
