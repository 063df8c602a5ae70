"""Hunks are all that differs between two renderings, and only that."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.drift.random_turns import replayed
from tito_core.drift.diff import MOST, Hunk, count_changed_ids, find_hunks, packed, split

IDS = st.lists(st.integers(1, 4), max_size=14)


@given(IDS, IDS, st.sets(st.integers(1, 2)))
def test_hunks_are_all_that_differs_and_only_that(
    used: list[int], rendered: list[int], markers: set[int]
) -> None:
    ours, theirs = packed(used), packed(rendered)
    found = find_hunks(ours, theirs, markers)
    assert replayed(used, rendered, found) == rendered
    assert bool(found) == (used != rendered)
    assert all(one.stop <= other.start and one.end <= other.begin for one, other in pairwise(found))
    for one in found:
        left, right = used[one.start : one.stop], rendered[one.begin : one.end]
        assert left[:1] != right[:1] or not (left and right)
        assert left[-1:] != right[-1:] or not (left and right)


def test_a_conversation_too_long_to_align_at_once_is_aligned_between_turns_that_occur_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the first turn none is left, and of two equal ones at the end one is."""
    monkeypatch.setattr("tito_core.drift.diff.MOST", 2)
    used, rendered = [6, 2, 5, 2, 6, 2, 7, 2, 7, 2], [5, 2, 6, 2, 7, 2]
    hunks = find_hunks(packed(used), packed(rendered), {2})
    assert hunks == [Hunk(0, 2, 0, 0), Hunk(6, 8, 4, 4)]


def test_as_many_turns_are_compared_one_by_one() -> None:
    hunks = find_hunks(packed([5, 2, 6, 2]), packed([6, 2, 7, 2]), {2})
    assert hunks == [Hunk(0, 1, 0, 1), Hunk(2, 3, 2, 3)]


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ((1, 3), (2, 4), True),
        ((1, 3), (3, 4), False),
        ((1, 4), (2, 3), True),
        ((3, 3), (1, 3), True),
        ((1, 1), (1, 3), True),
        ((2, 2), (1, 3), True),
        ((2, 2), (2, 2), True),
        ((4, 4), (1, 3), False),
        ((0, 0), (1, 3), False),
    ],
)
def test_hunks_overlap_where_they_share_an_id_or_one_is_empty_and_touches(
    one: tuple[int, int], other: tuple[int, int], overlap: bool
) -> None:
    left, right = Hunk(*one, 0, 0), Hunk(*other, 0, 0)
    assert left.overlaps(right) == right.overlaps(left) == overlap


@given(IDS, IDS, IDS, st.sets(st.integers(1, 2)))
def test_an_open_end_compares_no_further_than_the_ids_in_use(
    used: list[int], rendered: list[int], more: list[int], markers: set[int]
) -> None:
    assert find_hunks(packed(used), packed(used + more), markers, open_end=True) == []
    found = find_hunks(packed(used), packed(rendered), markers, open_end=True)
    ids = replayed(used, rendered, found)
    assert ids == rendered[: len(ids)]
    assert bool(found) == (rendered[: len(used)] != used)


@pytest.mark.parametrize(
    ("used", "rendered", "changed"),
    [
        ([1, 5, 2], [1, 5, 2], 0),
        ([1, 5, 6, 2, 7], [1, 56, 2, 7], 2),
        ([1, 5, 6, 2, 1, 7, 8, 2], [1, 56, 2, 1, 78, 2], 4),
        ([1, 5, 2, 1, 7, 2], [1, 5, 2], 3),
        ([1, 5, 2], [1, 5, 2, 1, 7, 2], 0),
        ([], [], 0),
        ([1, 4, 2, 1, 5, 2, 1, 6, 2], [1, 4, 2, 1, 6, 2], 3),
        ([1, 5, 9, 6, 2], [1, 7, 9, 8, 2], 3),  # 9 is between two changes of one turn
        ([1, 5, 6, 2], [1, 7, 6, 2], 1),
        ([5, 5, 2], [5, 2], 1),  # the one 5 that stays is not both the first and the last
        ([5, 2], [5, 5, 2], 0),
    ],
)
def test_changed_ids_of_a_turn_are_all_between_its_first_and_its_last_change(
    used: list[int], rendered: list[int], changed: int
) -> None:
    assert count_changed_ids(used, rendered, close=[2]) == changed


def test_without_a_close_all_ids_are_one_turn() -> None:
    assert count_changed_ids([1, 5, 6, 2], [1, 56, 2], ()) == 2


def test_a_turn_ends_with_the_first_id_of_the_close_and_no_other() -> None:
    longer, shorter = [6, 2, 4, 9, 2, 5, 2], [4, 9, 2, 5, 2]
    assert count_changed_ids(longer, shorter, close=[2, 9]) == 2
    assert count_changed_ids(shorter, longer, close=[2, 9]) == 0
    assert count_changed_ids([5, 9, 6, 2, 9], [7, 9, 8, 2, 9], close=[2, 9]) == 3


def test_hundreds_of_equal_turns_are_equal() -> None:
    same = [1, 5, 2] * 300
    assert count_changed_ids([7, 2, *same, 8, 2], same, close=[2]) == 4


def test_ids_that_occur_often_agree_as_others_do() -> None:
    same = [1, 2, 3, 4] * 60
    hunks = split(packed([9, *same, 7]), packed([*same, 8]), Hunk(0, 242, 0, 241))
    assert hunks == [Hunk(0, 1, 0, 0), Hunk(241, 242, 240, 241)]


@pytest.mark.parametrize(("count", "is_split"), [(498, True), (499, False)])
def test_longer_hunks_are_not_split(count: int, is_split: bool) -> None:
    same = range(1_000, 1_000 + count)
    whole = Hunk(0, count + 2, 0, count + 2)
    parts = [Hunk(0, 1, 0, 1), Hunk(count + 1, count + 2, count + 1, count + 2)]
    assert split(packed([1, *same, 2]), packed([3, *same, 4]), whole) == (parts if is_split else [whole])


def test_a_long_conversation_is_aligned_at_turns_that_occur_once() -> None:
    """One turn is missing at the beginning; the others differ in one id each, or in none."""
    turns = [[1, 100 + number, 7, 2] for number in range(1_200)]
    used = [item for turn in turns for item in turn]
    rendered = [item for turn in turns[1:] for item in (turn if turn[1] % 3 else [*turn[:2], 8, 2])]
    assert len(turns) ** 2 > MOST
    changed = sum(turn[1] % 3 == 0 for turn in turns[1:])
    assert count_changed_ids(used, rendered, [2]) == len(turns[0]) + changed
