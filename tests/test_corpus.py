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


def _sample_is_right(part: int, renderings: int | None, share: int) -> None:
    """Judge a part of the sample, each template in every `share`th shape, from another one on."""
    entries = sampled(bundled(), SAMPLE)[part::PARTS]
    asked = [SHAPES[place % share :: share] for place in range(len(entries))]
    seen = [judged(entry, renderings, shapes) for entry, shapes in zip(entries, asked, strict=True)]
    assert [(one.name, cell.shape, answer) for one, _, cell, answer in wrong(seen)] == []
    assert all(one.renderings or one.error for one in seen)
    assert counts(seen)["profile", EXACT] > sum(map(len, asked)) // 2


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.whole)])
@pytest.mark.parametrize("part", range(PARTS))
def test_no_answer_is_wrong_in_the_usual_rendering(part: int, share: int) -> None:
    _sample_is_right(part, 1, share)


@pytest.mark.whole
@pytest.mark.parametrize("part", range(0, PARTS, 4))
def test_no_answer_is_wrong_in_any_rendering(part: int) -> None:
    _sample_is_right(part, None, 1)
