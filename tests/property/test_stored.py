"""A stored trajectory comes back as it was, sharing what it shared; data that were changed are refused."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import tries
from tests.trajectories import packed, sharing, stitched
from tito_core import InputError, Trajectory
from tito_core.data import from_data, to_data
from tito_core.testing.strategies.trajectory import trajectories


def pickled(trajectory: Trajectory) -> Trajectory:
    again: Trajectory = pickle.loads(pickle.dumps(trajectory))  # noqa: S301  # our own bytes
    return again


def as_json(trajectory: Trajectory) -> Trajectory:
    return from_data(json.loads(json.dumps(to_data(trajectory))), Trajectory)


def as_whole_steps(trajectory: Trajectory) -> Trajectory:
    return from_data([to_data(step) for step in trajectory], Trajectory)


@pytest.mark.parametrize("store", [pickled, copy.deepcopy, as_json])
@given(trajectory=trajectories())
@tries(2)
def test_a_stored_trajectory_is_equal_and_shares_what_it_shared(
    store: Callable[[Trajectory], Trajectory], trajectory: Trajectory
) -> None:
    again = store(trajectory)
    assert type(again) is Trajectory
    assert again == trajectory
    assert again.longest == trajectory.longest
    assert again.parts() == trajectory.parts()
    assert [step.ledger for step in again] == [step.ledger for step in trajectory]
    assert sharing(again) == sharing(trajectory)
    assert packed(again)
    assert stitched(again) == stitched(trajectory)


@given(trajectory=trajectories())
@tries(1)
def test_storing_again_writes_the_same(trajectory: Trajectory) -> None:
    assert to_data(as_json(trajectory)) == to_data(trajectory)


@given(trajectory=trajectories())
@tries(1)
def test_a_list_of_whole_steps_is_read_too(trajectory: Trajectory) -> None:
    assert as_whole_steps(trajectory) == trajectory


Place = list[Any]
WRONG: tuple[Any, ...] = (None, True, False, -1, 0, 1, 2, 0.5, 1.0, "", "a", "1", [], {}, [0, 1], [1, 3])


def places(data: Any, place: Place) -> list[Place]:
    """Return the place of every value inside some data."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, value in items for found in ([*place, key], *places(value, [*place, key]))]


def mangled(data: Any, place: Place, how: str, value: Any) -> None:
    """Change the value at a place, remove it, write it twice, or swap it with its neighbour."""
    *outer, key = place
    for step in outer:
        data = data[step]
    if how == "replace":
        data[key] = value
    elif how == "remove":
        del data[key]
    elif isinstance(data, list):
        data.insert(key, data[key]) if how == "repeat" else data.append(data.pop(key))
    else:
        data["more"] = value


@given(
    trajectory=trajectories(least=1),
    at=st.integers(0, 10_000),
    how=st.sampled_from(("replace", "remove", "repeat", "move")),
    value=st.sampled_from(WRONG) | st.integers(0, 1_000),
)
@tries(8)
def test_changed_data_never_give_other_steps(trajectory: Trajectory, at: int, how: str, value: Any) -> None:
    data = json.loads(json.dumps(to_data(trajectory)))
    found = places(data, [])
    place = found[at % len(found)]
    mangled(data, place, how, value)
    try:
        again = from_data(data, Trajectory)
    except InputError as error:
        assert str(error).startswith("Trajectory")  # noqa: PT017  # an error is right here, none is right too
        return
    if "logprobs" not in place:  # the one thing that the checks leave out
        assert again == trajectory
    assert [step.ids.tolist() for step in again] == [step.ids.tolist() for step in trajectory]
    assert [step.ledger for step in again] == [step.ledger for step in trajectory]
