"""Kernel and model give the same answers: 20,000 cases in CI, more with `HYPOTHESIS_PROFILE=soak`."""

from __future__ import annotations

import os

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.model.compare.picks import SIZE
from tests.model.compare.report import first_wrong, readable, smallest, verdicts

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
SHARE = {"ci": 53, "soak": 5_000, "faults": 25}.get(PROFILE, 2)
"""Half the conversations of a test of rows; each of another kind is asked some fourteen questions."""
BYTES = st.binary(min_size=SIZE, max_size=SIZE)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""A case that disagrees is made smaller by its bytes, in 250 tries; hypothesis would take minutes."""
PARTS = range(4)
"""Tests of one kind, which run side by side."""


def check(room: str, data: bytes) -> None:
    """Ask all that the bytes describe; a disagreement is shown in words."""
    wrong = [verdict for _, verdict, _, _ in verdicts(room, data) if verdict.wrong]
    assert not wrong, readable(room, smallest(data, lambda other: first_wrong(room, other) is not None))


@pytest.mark.parametrize("part", PARTS)
@settings(max_examples=5 * SHARE, phases=PHASES)
@given(data=BYTES)
def test_stitch_and_bridge_agree_with_the_model(part: int, data: bytes) -> None:
    check("stitch", bytes((part, *data)))


@pytest.mark.parametrize("part", PARTS)
@settings(max_examples=2 * SHARE, phases=PHASES)
@given(data=BYTES)
def test_images_agree_with_the_model(part: int, data: bytes) -> None:
    check("images", bytes((part, *data)))


@pytest.mark.parametrize("part", PARTS)
@settings(max_examples=2 * SHARE, phases=PHASES)
@given(data=BYTES)
def test_forest_and_rows_agree_with_the_model(part: int, data: bytes) -> None:
    check("rows", bytes((part, *data)))
