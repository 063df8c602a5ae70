"""Routed experts stand at their ids, and are refused where their shape is wrong."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.core.samples.row_sets import LEFT, ROOT
from tito_core import InputError
from tito_core.samples.experts import MissingRow, RoutedExperts, merge_experts
from tito_core.samples.forest import Forest
from tito_core.samples.options import (
    SampleOptions,
)
from tito_core.samples.row import Row
from tito_core.samples.rows import make_rows

ROWS = RoutedExperts(data=bytes(4), dtype="uint8", shape=(4, 1))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"data": [1]}, r"data of routed experts is a list: give bytes"),
        ({"dtype": "float"}, "dtype of routed experts is 'float': give one of uint8"),
        ({"shape": (3, 1)}, r"4 bytes, uint8 of shape \(3, 1\) needs 3"),
        ({"shape": (4, 0)}, "shape of routed experts is"),
        ({"shape": ()}, "shape of routed experts is"),
        ({"shape": [4]}, "shape of routed experts is"),
        ({"shape": (4.0,)}, "shape of routed experts is"),
        ({"start": -1}, "start at -1"),
        ({"start": None}, "start at None"),
    ],
    ids=str,
)
def test_bad_routed_experts_are_refused(change: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        attrs.evolve(ROWS, **change)


def test_megabytes_are_not_shown() -> None:
    assert repr(ROWS) == "RoutedExperts(dtype='uint8', shape=(4, 1), start=0)"


def test_megabytes_of_a_row_are_not_shown_either() -> None:
    merged = merge_experts([("a", ROWS)], 4, MissingRow.SHORTER)
    assert repr(merged) == "RowExperts(dtype='uint8', shape=(4, 1), valid=((0, 4),))"


def rows(start: int, *numbers: int, dtype: str = "uint16") -> RoutedExperts:
    """Return rows of two numbers, each row a number twice."""
    data = b"".join(number.to_bytes(2, "little") * 2 for number in numbers)
    return RoutedExperts(data=data, dtype=dtype, shape=(len(numbers), 1, 2), start=start)


def routed(*experts: RoutedExperts | None, missing: MissingRow = MissingRow.SHORTER, **more: Any) -> Row:
    """Return the row of two turns, five ids."""
    calls = [attrs.evolve(one, routed_experts=sent) for one, sent in zip((ROOT, LEFT), experts, strict=True)]
    [row] = make_rows(Forest.of(calls), SampleOptions(missing_row=missing, **more)).rows
    return row


def numbers(row: Row) -> list[int]:
    assert row.experts is not None
    found = memoryview(row.experts.data).cast("H").tolist()
    assert found[::2] == found[1::2]
    assert row.experts.shape == (len(found) // 2, 1, 2)
    assert row.experts.dtype == "uint16"
    return found[::2]


@pytest.mark.parametrize(
    ("first", "second", "missing", "found", "valid"),
    [
        (rows(0, 1, 2), rows(0, 91, 92, 3, 4), MissingRow.SHORTER, [1, 2, 3, 4], ((0, 4),)),
        (rows(0, 1, 2), rows(0, 91, 92, 3, 4), MissingRow.PAD, [1, 2, 3, 4, 0], ((0, 4),)),
        (rows(0, 1, 2), rows(0, 91, 92, 3, 4), MissingRow.REPEAT, [1, 2, 3, 4, 4], ((0, 4),)),
        (rows(0, 1, 2), rows(3, 4), MissingRow.SHORTER, [1, 2, 0, 4], ((0, 2), (3, 4))),
        (rows(0, 1, 2), rows(3, 4), MissingRow.REPEAT, [1, 2, 2, 4, 4], ((0, 2), (3, 4))),
        (rows(1, 2), rows(0, 91, 92, 93, 94), MissingRow.SHORTER, [91, 2, 93, 94], ((0, 4),)),
        (rows(1, 2), None, MissingRow.REPEAT, [0, 2, 2, 2, 2], ((1, 2),)),
        (None, rows(0, 1, 2, 3, 4, 5), MissingRow.SHORTER, [1, 2, 3, 4, 5], ((0, 5),)),
        (rows(0), None, MissingRow.SHORTER, [], ()),
        (rows(0), None, MissingRow.PAD, [0, 0, 0, 0, 0], ()),
    ],
)
def test_routed_experts_stand_at_their_ids(
    first: RoutedExperts | None,
    second: RoutedExperts | None,
    missing: MissingRow,
    found: list[int],
    valid: tuple[tuple[int, int], ...],
) -> None:
    row = routed(first, second, missing=missing)
    assert numbers(row) == found
    assert row.experts is not None
    assert row.experts.valid == valid


def test_no_routed_experts_are_none() -> None:
    assert routed(None, None).experts is None
    assert merge_experts([], 3, MissingRow.PAD) is None


def test_routed_experts_of_two_kinds_do_not_mix() -> None:
    with pytest.raises(
        InputError, match=r"call 'b' has routed experts of \('int16', \(1, 2\)\), call 'a' of"
    ):
        routed(rows(0, 1, 2), rows(0, 1, 2, dtype="int16"))
