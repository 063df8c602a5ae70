"""What a stored call refuses, and how its turn ended."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.core import example
from tests.core.samples.calls import call
from tito_core import InputError
from tito_core.samples.call import Ending, StoredCall, WeightVersion
from tito_core.samples.experts import RoutedExperts
from tito_core.samples.forest import Forest

STEP = example.step()
ROWS = RoutedExperts(data=bytes(4), dtype="uint8", shape=(4, 1))
BAD_CALLS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name is ''"),
    ({"name": 7}, "name is 7"),
    ({"step": None}, "step is None: give a Step"),
    ({"order": 1.5}, "order is 1.5"),
    ({"order": True}, "order is True"),
    ({"finish_reason": 3}, "finish_reason is 3"),
    ({"finish_reason": "length"}, "finished by length: make its step with truncated=True"),
    ({"finish_reason": "abort"}, "finished by abort"),
    ({"reward": "good"}, "reward is 'good'"),
    ({"reward": True}, "reward is True"),
    ({"reward": float("nan")}, "reward is nan"),
    ({"metadata": [1]}, r"metadata is a list"),
    ({"weight_versions": "v1"}, "weight_versions is 'v1'"),
    ({"weight_versions": ["v1"]}, r"weight_versions\[0\] is 'v1'"),
    ({"weight_versions": [WeightVersion(version="a", start=0, stop=4)]}, "covers 0 to 4 of 3"),
    (
        {"weight_versions": [WeightVersion(version=v, start=s, stop=2) for v, s in (("a", 0), ("b", 1))]},
        r"weight_versions\[1\] covers 1 to 2 of 3 completion_ids, after 2",
    ),
    ({"weight_versions": [WeightVersion(version="a", start=2, stop=1)]}, "covers 2 to 1"),
    ({"routed_experts": b"1"}, "routed_experts is b'1'"),
    ({"routed_experts": attrs.evolve(ROWS, start=99)}, "cover positions 99 to 103 of"),
]


@pytest.mark.parametrize(("change", "error"), BAD_CALLS, ids=str)
def test_a_bad_call_is_refused_by_name(change: dict[str, Any], error: str) -> None:
    given: dict[str, Any] = {"name": "a", "step": STEP} | change
    with pytest.raises(InputError, match=error):
        StoredCall(**given)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": 1}, "version is 1"),
        ({"start": -1}, "start of a weight version is -1"),
        ({"stop": "2"}, "stop of a weight version is '2'"),
    ],
    ids=str,
)
def test_bad_weight_versions_are_refused(change: dict[str, Any], error: str) -> None:
    given: dict[str, Any] = {"version": "a", "start": 0, "stop": 1} | change
    with pytest.raises(InputError, match=error):
        WeightVersion(**given)


@pytest.mark.parametrize(
    ("change", "ending"),
    [
        ({}, Ending.WHOLE),
        ({"truncated": True}, Ending.TRUNCATED),
        ({"truncated": True, "finish_reason": "length"}, Ending.TRUNCATED),
        ({"truncated": True, "finish_reason": "abort"}, Ending.ABORTED),
        ({"completion_ids": [], "truncated": True, "finish_reason": "abort"}, Ending.EMPTY),
        ({"completion_ids": []}, Ending.EMPTY),
    ],
    ids=str,
)
def test_a_turn_ends_in_one_of_four_ways(change: dict[str, Any], ending: Ending) -> None:
    given: dict[str, Any] = {"name": "a", "prompt_ids": [1], "completion_ids": [2]} | change
    assert call(**given).ending is ending


def test_what_a_caller_edits_later_does_not_reach_a_call() -> None:
    metadata, versions = {"a": 1}, [WeightVersion(version="a", start=0, stop=1)]
    stored = StoredCall(name="a", step=STEP, metadata=metadata, weight_versions=versions)
    metadata["a"] = 2
    versions.clear()
    assert (stored.metadata, len(stored.weight_versions)) == ({"a": 1}, 1)
    values: list[Any] = [stored, Forest.of([stored]), Forest.of([stored]).nodes[0], ROWS]
    for value in values:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            value.name = "b"
