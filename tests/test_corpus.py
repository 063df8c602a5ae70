"""A sample of the public corpus of chat templates: no answer of the kernel is wrong."""

from __future__ import annotations

import pytest

from benchmarks.templates.corpus import bundled, sampled
from benchmarks.templates.judge import judged
from benchmarks.templates.report import counts, wrong
from benchmarks.templates.shapes import SHAPES
from benchmarks.templates.verdict import EXACT

SAMPLE = 40
PARTS = 8
"""Tests that share the sample, so that all cores have some."""


def _sample_is_right(part: int, renderings: int | None) -> None:
    entries = sampled(bundled(), SAMPLE)[part::PARTS]
    seen = [judged(entry, renderings) for entry in entries]
    assert [(one.name, cell.shape, answer) for one, _, cell, answer in wrong(seen)] == []
    assert all(one.renderings or one.error for one in seen)
    assert counts(seen)["profile", EXACT] > len(entries) * len(SHAPES) // 2


@pytest.mark.parametrize("part", range(PARTS))
def test_no_answer_is_wrong_in_the_usual_rendering(part: int) -> None:
    _sample_is_right(part, 1)


@pytest.mark.whole
@pytest.mark.parametrize("part", range(0, PARTS, 4))
def test_no_answer_is_wrong_in_any_rendering(part: int) -> None:
    _sample_is_right(part, None)
