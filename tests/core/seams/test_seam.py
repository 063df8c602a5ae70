"""Where an assistant's text ends in a render, on ids small enough to read."""

from __future__ import annotations

import pytest

from tito_core.seams.seam import Seam, after, common_prefix, find_seam


@pytest.mark.parametrize(
    ("text", "ids", "rest"),
    [
        ([5, 6], [1, 5, 6, 2], [2]),
        ([5, 6], [5, 6, 2, 3], [2, 3]),
        ([5, 6], [1, 5, 6], []),
        ([5, 6], [5, 6], []),
        ([5, 6], [1, 5, 7, 5, 6], []),
    ],
)
def test_the_ids_after_a_text(text: list[int], ids: list[int], rest: list[int]) -> None:
    assert after(text, ids) == tuple(rest)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ([5, 6], [1, 5, 2]),
        ([5, 6], [1, 2, 5]),  # cut off
        ([5, 6], [6]),
        ([5, 6], []),
        ([5], [5, 1, 5]),
        ([5, 5], [5, 5, 5]),  # it overlaps itself
        ([], [1, 2]),
        ([], []),
    ],
)
def test_a_text_that_does_not_stand_there_once_is_followed_by_nothing(
    text: list[int], ids: list[int]
) -> None:
    assert after(text, ids) is None


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ([], [1], 0),
        ([1, 2], [1, 2], 2),
        ([1, 2], [1, 2, 3], 2),
        ([1, 9, 3], [1, 2, 3], 1),
    ],
)
def test_a_common_prefix_ends_with_the_first_difference(one: list[int], other: list[int], count: int) -> None:
    assert common_prefix(one, other) == count


def test_a_seam_is_where_the_longer_render_goes_on() -> None:
    seam = find_seam([1, 50, 9, 2], [1, 50, 51, 9, 2])
    assert seam == Seam(ids=(1, 50, 9, 2), place=2)
    assert seam.tail == (9, 2)


@pytest.mark.parametrize(
    ("short", "longer"),
    [
        ([1, 50, 2], [1, 50, 2]),  # nothing was added
        ([1, 50, 9, 2], [1, 50, 2]),  # less came of more
        ([50, 2], [7, 50, 51, 2]),  # nothing of the text stands before the place
        ([1, 50, 9, 2], [1, 50, 51, 8, 2]),  # something else changed with it
    ],
)
def test_a_text_that_was_not_just_lengthened_has_no_seam(short: list[int], longer: list[int]) -> None:
    assert find_seam(short, longer) is None


def test_another_render_ends_with_the_tail_and_the_id_before_it() -> None:
    seam = Seam(ids=(1, 50, 9, 2), place=2)
    assert seam.ends((8, 8, 50, 9, 2))
    assert not seam.ends((8, 8, 51, 9, 2))  # the text ends otherwise: a merge would not be seen
    assert not seam.ends((9, 2))
    assert seam.ends((8, 9, 2), cut=1)
    assert not seam.ends((8, 7, 2), cut=1)
    assert not seam.ends((50, 9, 3))
