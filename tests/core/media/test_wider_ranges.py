"""Which ids beside media belong to them: what an engine merged, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_core.media.expansion import collapse, expand
from tito_core.media.ranges import MediaRange
from tito_core.media.wider_ranges import ranges_seen

PAD = 7


def image(offset: int, collapsed: Sequence[int] = (PAD,)) -> MediaRange:
    return MediaRange(
        modality="image", identity="cat", offset=offset, length=len(collapsed), collapsed=tuple(collapsed)
    )


GAPS = st.lists(st.lists(st.sampled_from((1, 2, 5)), min_size=2, max_size=4), min_size=2, max_size=4)
WIDTHS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3)
PIECE = (90, PAD, PAD, 91)


@given(GAPS, WIDTHS)
def test_every_id_that_the_engine_saw_is_an_image_s_or_was_sent(
    gaps: list[list[int]], widths: list[tuple[bool, bool]]
) -> None:
    """Law: whatever the engine merged beside images, the ranges expand to what it saw, and collapse again."""
    ids, media, wide = list(gaps[0]), list[MediaRange](), list[MediaRange]()
    for gap, (left, right) in zip(gaps[1:], widths, strict=False):
        media.append(image(len(ids)))
        start = len(ids) - left
        ids += [PAD, *gap]
        wide.append(image(start, ids[start : media[-1].stop + right]))
    seen, places = expand(ids, wide, [PIECE] * len(wide))
    found = ranges_seen(ids, media, seen, [(one.offset, one.length) for one in places])
    assert found is not None
    grown, ranges = expand(ids, found, [PIECE] * len(found))
    assert (grown, [one.offset for one in ranges]) == (seen, [one.offset for one in places])
    assert collapse(grown, ranges)[0] == ids
    if all(left and right for left, right in widths[: len(wide)]):
        assert found == wide


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        pytest.param([9, 8, 7, 7, 6], [(2, 2)], id="another id before"),
        pytest.param([5, 7, 7, 9], [(1, 2)], id="another id after"),
        pytest.param([7, 7, 6], [(0, 2)], id="two ids gone"),
        pytest.param([5, 4, 7, 7, 6], [], id="no range"),
        pytest.param([5, 4, 7, 7, 6], [(2, 9)], id="beyond the ids"),
        pytest.param([5, 4, 7, 7, 6], [(2, -1)], id="before its own offset"),
    ],
)
def test_other_changes_are_not_an_image_s(seen: list[int], found: list[tuple[int, int]]) -> None:
    assert ranges_seen([5, 4, 7, 6], [image(2)], seen, found) is None


def test_ranges_that_overlap_are_none() -> None:
    assert ranges_seen([7, 6, 7], [image(0), image(2)], [7, 7, 6, 7], [(0, 3), (2, 2)]) is None
