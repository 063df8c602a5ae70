"""What a fresh rendering would have changed, turn against turn."""

from __future__ import annotations

import pytest

from tito_core.drift.rerender import Drift, drift


@pytest.mark.parametrize(
    ("used", "rendered", "changed"),
    [
        ([1, 5, 9, 6, 2], [1, 7, 9, 8, 2], 3),  # 9 lies between two changes of one turn
        ([1, 5, 6, 2], [1, 7, 6, 2], 1),
        ([5, 5, 2], [5, 2], 1),  # the one 5 that stays is not both the first and the last
        ([5, 2], [5, 5, 2], 0),
    ],
)
def test_within_a_turn_all_between_the_first_and_the_last_change_counts(
    used: list[int], rendered: list[int], changed: int
) -> None:
    assert drift(used, rendered, close=[2]).changed == changed


def test_a_turn_ends_with_the_first_id_of_the_close_and_no_other() -> None:
    longer, shorter = [6, 2, 4, 9, 2, 5, 2], [4, 9, 2, 5, 2]
    assert drift(longer, shorter, close=[2, 9]) == Drift(changed=2, first=0)
    assert drift(shorter, longer, close=[2, 9]) == Drift(changed=0, first=0)


def test_hundreds_of_equal_turns_are_equal() -> None:
    same = [1, 5, 2] * 300
    assert drift([7, 2, *same, 8, 2], same, close=[2]) == Drift(changed=4, first=0)
