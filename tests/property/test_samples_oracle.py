"""Rows are those of the slow oracle, which looks at every id by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import forest_oracle as oracle
from tests.profiles import tries
from tito_core.samples.call import StoredCall
from tito_core.samples.forest import Forest
from tito_core.samples.options import SampleOptions
from tito_core.samples.row import Row
from tito_core.samples.rows import make_rows
from tito_core.testing.strategies.stored_call import CALLS, OPTIONS


def authors(row: Row) -> Iterator[tuple[Any, ...]]:
    for span in row.ledger:
        yield from [(span.origin, span.call, span.weights)] * (span.stop - span.start)


@given(CALLS, OPTIONS, st.data())
@tries(5)
def test_rows_are_those_of_the_oracle(
    calls: list[StoredCall], options: SampleOptions, data: st.DataObject
) -> None:
    leaves = [row.name for row in oracle.drafts(calls, options, None)]
    only = data.draw(st.sampled_from((None, leaves[::2], leaves[1:])))
    rows = make_rows(Forest.of(calls), options, only=only).rows
    expected = oracle.samples(calls, options, only)
    assert [row.name for row in rows] == [row.name for row in expected]
    for ours, theirs in zip(rows, expected, strict=True):
        assert ours.ids == theirs.ids
        assert list(ours.loss_mask) == theirs.mask
        assert list(ours.logprobs) == theirs.logprobs
        assert list(authors(ours)) == theirs.authors
        assert ours.reward == theirs.reward
        assert ours.weight == pytest.approx(theirs.weight)


@given(CALLS, OPTIONS)
@tries(3)
def test_routed_experts_are_those_of_the_oracle(calls: list[StoredCall], options: SampleOptions) -> None:
    expected = {row.name: row for row in oracle.samples(calls, options)}
    for row in make_rows(Forest.of(calls), options).rows:
        table = oracle.table(expected[row.name], options.missing_row)
        assert (row.experts is None) == (table is None)
        if row.experts is None or table is None:
            continue
        rows, valid = table
        assert row.experts.data == b"".join(rows)
        assert row.experts.shape == (len(rows), 1, 2)
        covered = [p for start, stop in row.experts.valid for p in range(start, stop)]
        assert covered == [place for place, sent in enumerate(valid) if sent]
