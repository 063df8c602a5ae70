"""Routed experts stand at their ids, and are refused where their shape is wrong."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.core.samples.calls import call
from tests.core.samples.row_sets import LEFT, ROOT
from tito_core import InputError
from tito_core.samples.experts import MissingRow, RoutedExperts, merge_experts
from tito_core.samples.forest import Forest
from tito_core.samples.options import (
    SampleOptions,
    TurnRule,
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
    merged = merge_experts([("a", 4, ROWS)], 4, MissingRow.SHORTER)
    assert repr(merged) == "RowExperts(dtype='uint8', shape=(4, 1), valid=((0, 4),), corrected=())"


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
        (None, rows(0, 1, 2, 3, 4, 5), MissingRow.SHORTER, [1, 2, 3, 4], ((0, 4),)),
        (rows(0, 1, 2, 99), rows(2, 3, 4), MissingRow.SHORTER, [1, 2, 3, 4], ((0, 4),)),
        (rows(0, 1), rows(2, 3, 4), MissingRow.PAD, [1, 0, 3, 4, 0], ((0, 1), (2, 4))),
        (rows(0, 0, 2), rows(0, 91, 92, 3, 4), MissingRow.SHORTER, [91, 2, 3, 4], ((0, 4),)),
        (rows(0, 0, 2), rows(2, 3, 4), MissingRow.REPEAT, [0, 2, 3, 4, 4], ((1, 4),)),
        (rows(0, 0, 0), rows(0, 0, 0, 0, 4), MissingRow.PAD, [0, 0, 0, 4, 0], ((3, 4),)),
        (rows(0, 1, 2), rows(2, 3, 0), MissingRow.SHORTER, [1, 2, 3], ((0, 3),)),
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


@pytest.mark.parametrize(
    ("first", "second", "found", "corrected"),
    [
        (rows(0, 7, 7), rows(0, 91, 8, 3, 4), [7, 8, 3, 4], ((1, 2),)),
        (rows(0, 7, 7), rows(0, 7, 7, 7, 4), [7, 7, 7, 4], ()),
        (rows(0, 7, 7), rows(1, 7, 3, 4), [7, 7, 3, 4], ()),
        (rows(0, 7, 7), rows(2, 3, 4), [7, 7, 3, 4], ()),
        (rows(0, 7, 7), rows(0, 9, 9, 3, 4), [7, 7, 3, 4], ()),
        (rows(0, 0, 7), rows(0, 1, 92, 3, 4), [1, 7, 3, 4], ()),
        (rows(0, 0x101, 1), rows(0, 91, 92, 3, 4), [0x101, 1, 3, 4], ()),
    ],
)
def test_a_repeated_row_yields_to_one_that_is_not(
    first: RoutedExperts, second: RoutedExperts, found: list[int], corrected: tuple[tuple[int, int], ...]
) -> None:
    row = routed(first, second)
    assert numbers(row) == found
    assert row.experts is not None
    assert row.experts.valid == ((0, 4),)
    assert row.experts.corrected == corrected


@pytest.mark.parametrize(
    ("experts", "valid"),
    [((3, 2, 2), ((1, 3),)), ((3, 4, 1), ((0, 3),)), ((3, 4), ((1, 3),)), ((12,), ((0, 12),))],
)
def test_a_row_of_zeros_may_be_true_with_one_expert_per_layer(
    experts: tuple[int, ...], valid: tuple[tuple[int, int], ...]
) -> None:
    sent = RoutedExperts(data=bytes((*[0] * 4, *range(8))), dtype="uint8", shape=experts)
    table = merge_experts([("a", sent.rows, sent)], sent.rows, MissingRow.PAD)
    assert table is not None
    assert table.valid == valid


def test_zeros_of_one_expert_per_layer_yield_to_another_row() -> None:
    sent = [RoutedExperts(data=bytes(data), dtype="uint8", shape=(2, 1, 1)) for data in ((0, 5), (4, 6))]
    table = merge_experts([("a", 2, sent[0]), ("b", 2, sent[1])], 2, MissingRow.PAD)
    assert table is not None
    assert (list(table.data), table.valid, table.corrected) == ([4, 5], ((0, 2),), ((0, 1),))


def test_the_last_row_of_a_prompt_alone_is_true() -> None:
    """A call that sampled nothing had a forward pass for each of its ids."""
    empty = call("b", [1, 2, 3, 4], [], routed_experts=rows(0, 1, 2, 3, 4))
    [row] = make_rows(Forest.of([ROOT, empty]), SampleOptions(empty=TurnRule.KEEP)).rows
    assert numbers(row) == [1, 2, 3, 4]


def test_no_routed_experts_are_none() -> None:
    assert routed(None, None).experts is None
    assert merge_experts([], 3, MissingRow.PAD) is None


def test_routed_experts_of_two_kinds_do_not_mix() -> None:
    with pytest.raises(
        InputError, match=r"call 'b' has routed experts of \('int16', \(1, 2\)\), call 'a' of"
    ):
        routed(rows(0, 1, 2), rows(0, 1, 2, dtype="int16"))
