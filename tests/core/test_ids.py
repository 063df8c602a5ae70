"""Ids are checked once, packed once, and read as a list or as bytes."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

from tito_core import Ids, InputError


def test_ids_are_taken_once_and_packed_once() -> None:
    ids = Ids.of([7, 8])
    assert Ids.of(ids) is ids
    assert ids.then(()) is ids
    packed = ids.then((9,)).packed()
    assert packed == [7, 8, 9]
    assert all(isinstance(part, array) and part.itemsize == 4 for part in packed.parts())
    assert packed.packed() is packed
    longer = packed.then((10,)).packed()
    assert longer.extends(packed)
    assert longer.tolist() == [7, 8, 9, 10]
    assert all(type(item) is int for item in longer.tolist())


def test_ids_begin_with_their_prefix_by_identity_or_value() -> None:
    ids = Ids.of([1, 2, 3])
    assert ids.then((4,)).starts_with(ids)
    assert Ids.of([1, 2, 3, 4]).starts_with(ids)
    assert ids.starts_with(Ids.of([1, 2, 3]))
    assert not Ids.of([1, 2, 4, 4]).starts_with(ids)
    assert not Ids.of([1, 2]).starts_with(ids)


def test_only_what_is_not_packed_yet_is_packed() -> None:
    base = Ids.of([1, 2]).packed()
    grown = base.then((3,)).then((4,)).packed()
    assert grown.parts() == [array("I", [1, 2]), array("I", [3]), array("I", [4])]
    assert grown.older is not None
    assert grown.older.older is base
    assert Ids.of([]).packed() == []
    assert Ids.from_items(iter([1, 2])).parts() == [array("I", [1, 2])]


@pytest.mark.parametrize(
    ("wrong", "place"),
    [([0, 1, -1, -2], "2"), ([True], "0"), ([0, False], "1"), ([1, None], "1"), ([2**32], "0")],
)
def test_the_first_invalid_id_is_named(wrong: Any, place: str) -> None:
    words = rf"^taken\[{place}\] is {wrong[int(place)]!r}: an id is a whole number from 0 to 4294967295$"
    with pytest.raises(InputError, match=words):
        Ids.of(wrong, "taken")


@pytest.mark.parametrize(
    "wrong",
    ["12", b"12", bytearray(b"12"), 5, None, {1, 2}, frozenset([1]), {1: 2}, {1: 2}.keys(), np.array(5)],
)
def test_a_value_that_is_no_sequence_of_ids_is_named_by_its_type(wrong: Any) -> None:
    """A set and a mapping have no order, and an array of no dimension has no items."""
    kind = type(wrong).__name__
    with pytest.raises(InputError, match=f"^taken must be a sequence of ids, not {kind}: give a flat list$"):
        Ids.of(wrong, "taken")


@pytest.mark.parametrize("right", [[1, 2], (1, 2), array("I", [1, 2]), np.array([1, 2]), range(1, 3)])
def test_ids_are_equal_to_any_sequence_of_the_same_integers(right: Any) -> None:
    ids = Ids.of([1]).then((2,))
    assert (ids == right) is True
    assert (ids != right) is False


@pytest.mark.parametrize(
    "wrong",
    [
        [1, 2, 3],
        np.array([1, 2, 3]),
        np.array([1]),
        np.array([1, 3]),
        np.array(1),
        np.array([[1, 2], [1, 2]]),
        np.array([]),
        array("I", [1]),
        {1, 2},
        5,
    ],
)
def test_ids_are_unequal_to_anything_else(wrong: Any) -> None:
    ids = Ids.of([1]).then((2,))
    assert (ids == wrong) is False
    assert (ids != wrong) is True


def test_whole_numbers_of_any_library_are_ids() -> None:
    class Index:
        def __index__(self) -> int:
            return 5

    assert Ids.of([Index()]).tolist() == [5]  # type: ignore[list-item]  # what numpy's integers are
    assert type(Ids.of([Index()])[0]) is int  # type: ignore[list-item]  # likewise
    assert Ids.of(array("I", [1, 2])) == [1, 2]
    assert Ids.of([0, 2**32 - 1]) == [0, 2**32 - 1]


def test_ids_in_one_piece_are_four_bytes_each() -> None:
    ids = Ids.of([1, 2]).then((3,)).then(array("I", [2**32 - 1]))
    assert list(memoryview(ids.tobytes()).cast("I")) == ids.tolist()
    assert Ids.of([]).tobytes() == b""
