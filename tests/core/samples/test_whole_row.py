"""A step as a training sequence: what it and the steps before it sampled, and what the engine said of it."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given

from tests.core import example
from tests.profiles import tries
from tito_core import InputError, Origin, Step, Trajectory
from tito_core.samples import Forest, StoredCall
from tito_core.samples.whole_row import row_of
from tito_core.testing.strategies.trajectory import trajectories


def step(prompt_ids: list[int], completion_ids: list[int], **more: Any) -> Step:
    return Step(prompt=[], completion=[], prompt_ids=prompt_ids, completion_ids=completion_ids, **more)


FIRST = step([1, 2], [3, 4], logprobs=[-0.5, -0.25])
SECOND = step([1, 2, 3, 4, 5], [6], logprobs=[-1])
THIRD = step([1, 2, 3, 4, 5, 6, 7], [8], logprobs=[-2.0])


def test_a_row_has_all_turns_of_its_history_in_any_order() -> None:
    strangers = [
        step([1, 2], [3, 9], logprobs=[-9.0, -9.0]),
        step([1, 9], [3, 4], logprobs=[-9.0, -9.0]),
        step([1, 2, 3], [4, 5, 6, 7, 8, 9]),
        THIRD,
    ]
    for earlier in (
        [FIRST, SECOND],
        [*strangers, SECOND, FIRST],
        Trajectory([FIRST, *strangers, SECOND]),
        [FIRST, SECOND, *strangers],
    ):
        row = row_of(THIRD, earlier)
        assert row.input_ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
        assert list(row.loss_mask) == [0, 0, 1, 1, 0, 1, 0, 1]
        assert row.logprobs == [None, None, -0.5, -0.25, None, -1, None, -2.0]


def test_a_turn_of_a_step_that_is_not_given_does_not_train() -> None:
    """The ledger knows that it was sampled, but the log-probabilities are unknown."""
    ledger = FIRST.ledger.then((Origin.ENVIRONMENT, 1))
    alone = row_of(step([1, 2, 3, 4, 5], [6], prompt_ledger=ledger))
    assert list(alone.loss_mask) == [0, 0, 0, 0, 0, 1]
    assert alone.logprobs == [None] * 6


def test_numpy_reads_a_row_without_a_copy() -> None:
    row = row_of(SECOND, [FIRST], fill=0.0)
    ids, logprobs = np.asarray(row.input_ids), np.asarray(row.logprobs)
    mask = np.frombuffer(row.loss_mask, "u1")
    assert [read.dtype.name for read in (ids, mask, logprobs)] == ["uint32", "uint8", "float64"]
    assert ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert logprobs.tolist() == [0.0, 0.0, -0.5, -0.25, 0.0, -1.0]
    ids[0] = 9
    assert row.input_ids[0] == 9
    assert SECOND.prompt_ids[0] == 1
    assert row_of(SECOND, [FIRST]).input_ids[0] == 1


def test_a_fill_stands_on_what_was_not_sampled() -> None:
    assert row_of(FIRST, fill=-7).logprobs[:3].tolist() == [-7.0, -7.0, -0.5]  # type: ignore[union-attr]  # an array
    assert math.isnan(row_of(FIRST, fill=math.nan).logprobs[0] or 0)


@pytest.mark.parametrize("logprobs", [None, [None, -1.0]])
def test_a_fill_is_never_taken_for_a_log_probability(logprobs: Any) -> None:
    first = step([1, 2], [3, 4], logprobs=logprobs)
    assert row_of(first).logprobs[2] is None
    for row in ((first,), (SECOND, [first])):
        with pytest.raises(InputError, match=r"^the sampled id at position 2 has no log-probability: "):
            row_of(*row, fill=0.0)


@pytest.mark.parametrize(("logprob", "fill"), [(-(10**400), 0.0), (-1.0, 10**400)])
def test_a_number_that_is_too_large_is_an_input_error(logprob: float, fill: float) -> None:
    with pytest.raises(InputError, match=r"^fill or a log-probability is too large for a float"):
        row_of(step([1], [2], logprobs=[logprob]), fill=fill)


@pytest.mark.parametrize(
    ("args", "fill", "words"),
    [
        ((5,), None, r"^step is 5: give a Step$"),
        ((FIRST, 5), None, r"^earlier is 5: give the steps before this one$"),
        ((FIRST, [FIRST, "a"]), None, r"^earlier\[1\] is 'a': give a Step$"),
        ((FIRST,), "0", r"^fill is '0': give a number or None$"),
        ((FIRST,), True, r"^fill is True: give a number or None$"),
    ],
)
def test_wrong_arguments_are_named(args: Any, fill: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        row_of(*args, fill=fill)


def test_an_empty_step_is_an_empty_row() -> None:
    row = row_of(step([], []))
    assert (len(row), row.input_ids.tolist(), row.loss_mask, row.logprobs) == (0, [], b"", [])
    assert repr(row_of(SECOND, [FIRST])) == "WholeRow(6 ids, 3 of them sampled)"


def test_a_row_of_a_long_rollout_reads_no_history_twice() -> None:
    trajectory = Trajectory([example.step()])
    for _ in range(300):
        last = trajectory[-1]
        more = Step(
            prompt=last.messages.then([example.user()]),
            completion=[example.assistant()],
            prompt_ids=last.ids.then((7, 8)),
            completion_ids=[9, 10],
        )
        trajectory = trajectory.append(more)
    row = row_of(trajectory[-1], trajectory)
    assert row.loss_mask.count(1) == 3 + 300 * 2
    assert row.loss_mask == bytes(
        cast("Any", trajectory[-1].ledger.mask()[:7]) + [1, 1, 1] + [0, 0, 1, 1] * 300
    )


@given(trajectories(least=1))
@tries(2)
def test_a_row_has_the_turns_that_a_forest_finds(trajectory: Trajectory) -> None:
    forest = Forest.of(
        StoredCall(name=str(place), order=place, step=one) for place, one in enumerate(trajectory)
    )
    for node in forest.nodes:
        row = row_of(node.call.step, trajectory)
        expected: list[float | None] = [None] * len(row)
        mask = [0] * len(row)
        kept: list[list[int]] = [[] for _ in mask]
        for above in forest.path(node.name):
            call = forest[above].call
            mask[call.start : call.stop] = [1] * (call.stop - call.start)
            expected[call.start : call.stop] = call.step.logprobs or [None] * (call.stop - call.start)
            if call.step.sampling_mask is not None:
                kept[call.start : call.stop] = map(list, call.step.sampling_mask)
        assert row.input_ids.tolist() == node.call.ids.tolist()
        assert list(row.loss_mask) == mask
        assert row.logprobs == expected
        assert list(map(list, row.sampling_mask or kept)) == kept
