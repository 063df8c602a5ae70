"""Which ids beside media belong to them: what an engine merged, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.pictures import CLOSE, PLACEHOLDERS, first_step, showing, tokenize
from tito_core import Bridge, Extension, Origin
from tito_core.media.expansion import collapse, expand, first_media
from tito_core.media.ranges import Media, MediaRange
from tito_core.media.wider_ranges import ranges_seen, widened, wider_ranges
from tito_core.seams.spans import MessageSpan

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


@pytest.mark.parametrize(
    ("ids", "offsets", "found"),
    [
        ([5, 7, 6], [1], [[(1, 2)], [(0, 2)], [(1, 3)], [(0, 3)]]),
        ([5, 7], [1], [[(1, 2)], [(0, 2)]]),
        ([7, 6], [0], [[(0, 1)], [(0, 2)]]),
        ([5, 7, 6, 7, 5], [1, 3], [[(1, 2), (3, 4)], [(0, 2), (2, 4)], [(1, 3), (3, 5)]]),
        ([5, 7, 7, 5], [1, 2], [[(1, 2), (2, 3)]]),
    ],
)
def test_wider_ranges_stay_inside_of_the_ids_and_apart(
    ids: list[int], offsets: list[int], found: list[list[tuple[int, int]]]
) -> None:
    wider = wider_ranges(ids, [image(offset) for offset in offsets])
    assert [[(one.offset, one.stop) for one in ranges] for ranges in wider] == found


def test_ranges_that_overlap_are_none() -> None:
    assert ranges_seen([7, 6, 7], [image(0), image(2)], [7, 7, 6, 7], [(0, 3), (2, 2)]) is None


def expected_border(place: int, ranges: Sequence[MediaRange], *, end: bool) -> int:
    """Return where a border of a span belongs: at an end of the range that it stands inside of."""
    inside = [one for one in ranges if one.offset < place < one.stop]
    return (inside[0].stop if end else inside[0].offset) if inside else place


def test_first_ranges_are_shared_where_they_are_those_of_an_older_prompt() -> None:
    older = Media.of([image(1)])
    media = older.then([image(3), image(5)])
    assert first_media(media, 1) is older
    assert list(first_media(media, 2)) == [image(1), image(3)]
    assert list(first_media(older, 1)) == [image(1)]


@pytest.mark.parametrize("spans", [True, False])
@pytest.mark.parametrize("left", range(6))
@pytest.mark.parametrize("right", range(6))
def test_a_wider_image_is_never_cut_by_a_message(left: int, right: int, *, spans: bool) -> None:
    """Borders inside of an image go to its ends, and all others stay."""
    step = first_step(showing("What?", "cat"), keys=["cat"])
    found = Bridge(tokenize, [CLOSE], media=PLACEHOLDERS, spans=spans).extend(
        step.ids, [showing("And this?", "dog")], media=step.media
    )
    assert isinstance(found, Extension)
    base, new = found.ids.length - len(found.added), found.media[-1]
    wider = attrs.evolve(new, offset=new.offset - base - left, length=new.length + left + right)
    wide = widened(found, [wider])
    assert isinstance(wide, Extension)
    if isinstance(found.spans, tuple):
        (span,) = found.spans
        assert wide.spans == (
            MessageSpan(
                expected_border(span.start, [wider], end=False),
                expected_border(span.stop, [wider], end=True),
                expected_border(span.content_start, [wider], end=False),
                expected_border(span.content_stop, [wider], end=True),
            ),
        )
    else:
        assert wide.spans is found.spans is None
    assert list(wide.media) == [*step.media, attrs.evolve(wider, offset=new.offset - left)]
    assert (wide.ids, wide.added, wide.ledger.length) == (found.ids, found.added, found.ledger.length)
    origins = list(wide.ledger)[new.offset - left - 1 : new.stop + right + 1]
    assert [one is Origin.MEDIA for one in origins] == [False, *[True] * wider.length, False]
    assert (wide is found) is (left == right == 0)


def test_an_image_may_have_all_ids_before_it_that_the_template_wrote() -> None:
    step = first_step(showing("What?", "cat"), keys=["cat"])
    found = Bridge(tokenize, [CLOSE], media=PLACEHOLDERS).extend(
        step.ids, [showing("And this?", "dog")], media=step.media
    )
    assert isinstance(found, Extension)
    new = found.media[-1]
    before = new.offset - next(span.start for span in found.ledger.spans if span.stop == new.offset)
    base = found.ids.length - len(found.added)
    for more, fits in ((before, True), (before + 1, False)):
        wider = attrs.evolve(new, offset=new.offset - base - more, length=new.length + more)
        assert (widened(found, [wider]) is not None) is fits
