"""Kernel and model give the same answers: 20,000 cases in CI, more with `HYPOTHESIS_PROFILE=soak`."""

from __future__ import annotations

import os
import random

import pytest

from tests.model.compare.report import disagreement
from tests.model.compare.run import case_bytes

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
SHARE = {"ci": 460, "soak": 45_000, "faults": 220}.get(PROFILE, 20)
"""Conversations of one part. Each is asked some eleven questions."""
SEED = random.SystemRandom().randrange(2**32) if PROFILE in ("dev", "soak") else 20
"""CI and planted faults see the same cases each time."""
PARTS = range(4)
"""Tests that run side by side."""


@pytest.mark.parametrize("part", PARTS)
def test_kernel_and_model_agree(part: int) -> None:
    """A disagreement is made as small as it will get, and shown in words."""
    for number in range(part * SHARE, (part + 1) * SHARE):
        room, data = case_bytes(SEED, number)
        found = disagreement(room, data)
        if found is not None:
            pytest.fail(f"python -m tests.model --seed {SEED} --replay {number}\n{found}")
