"""Masks line up with the sampled ids, or are an error; they are stored small and come back equal."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core import example
from tests.profiles import tries
from tito_core import InputError, SamplingMask, Step
from tito_core.data import from_data, to_data

KEPT = st.lists(st.none() | st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=4), max_size=6)


def masked(*kept: Sequence[int] | None) -> Step:
    return example.step(sampled=(7, 8), sampling_mask=SamplingMask.of(kept))


@given(KEPT)
@tries(5)
def test_plain_data_and_pickles_give_it_back(kept: list[list[int] | None]) -> None:
    mask = SamplingMask.of(kept)
    assert [list(one) for one in mask] == [one or [] for one in kept]
    assert from_data(json.loads(json.dumps(to_data(mask))), SamplingMask) == mask
    assert pickle.loads(pickle.dumps(mask)) == mask  # noqa: S301  # written here


@given(KEPT, KEPT, st.integers(0, 3), st.integers(0, 16))
@tries(5)
def test_placed_masks_are_cut_and_apart(
    first: list[list[int] | None], second: list[list[int] | None], gap: int, length: int
) -> None:
    """In either order: none is moved, none is filled with that of another place."""
    parts = [(0, SamplingMask.of(first)), (len(first) + gap, SamplingMask.of(second))]
    whole = [one or [] for one in [*first, *[None] * gap, *second, *[None] * length]]
    for given_in in (parts, parts[::-1]):
        placed = SamplingMask.placed(given_in, length)
        assert placed is not None
        assert list(map(list, placed)) == whole[:length]


def test_no_mask_is_not_an_empty_one() -> None:
    assert SamplingMask.placed([], 3) is None
    assert example.step().sampling_mask is None


def test_a_step_keeps_it() -> None:
    step = masked([7], None)
    assert from_data(to_data(step), Step) == step
    assert pickle.loads(pickle.dumps(step)) == step  # noqa: S301  # written one line above
    assert attrs.evolve(step, truncated=True).sampling_mask is step.sampling_mask
    assert step != example.step()


def test_a_step_that_was_stored_before_masks_has_none() -> None:
    state = example.step().__getstate__()
    del state["sampling_mask"]
    old = Step.__new__(Step)
    old.__setstate__(state)
    assert old == example.step()
    assert "sampling_mask" not in to_data(old)


def test_eight_ids_a_place_take_less_than_six_bytes_each() -> None:
    mask = SamplingMask.of([range(150_000 + place, 150_008 + place) for place in range(500)])
    assert len(json.dumps(to_data(mask))) < 6 * len(mask.ids)


@pytest.mark.parametrize(
    ("kept", "complaint"),
    [
        ([[7]], "sampling_mask has 1 positions for 2 completion_ids: give one for each id"),
        ([[7], [8], [9]], "sampling_mask has 3 positions for 2"),
        ([[8], [7]], r"sampling_mask\[0\] lacks 7, the id of completion_ids\[0\]: it is the mask of another"),
        ([None, [7, 9]], r"sampling_mask\[1\] lacks 8"),
        ([[7, 5, 5], [8]], r"sampling_mask\[0\] has an id twice"),
    ],
)
def test_one_that_does_not_line_up_is_an_error(kept: list[list[int] | None], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        masked(*kept)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ([[7]], "a sampling mask is an object with ids and counts"),
        ({"ids": "BwAAAA=="}, "a sampling mask is an object with ids and counts"),
        ({"ids": "BwAA", "counts": [1]}, "have 3 bytes: give four for each id"),
        ({"ids": "?", "counts": [1]}, "give bytes as a string of base64"),
        ({"ids": "BwAAAA==", "counts": [2]}, "add up to 2, it has 1 ids"),
        ({"ids": "BwAAAA==", "counts": [True]}, "an id is a whole number"),
    ],
)
def test_wrong_data_are_named(data: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        from_data(data, SamplingMask)
