"""Describe how an image differs: another image, another number of ids, another place, or no image."""

from __future__ import annotations

from ..media.ranges import MediaRange
from .diff import Hunk, Packed
from .numbered import NumberedMedia

IDENTITY = 24
"""Characters of an identity that are shown."""


def media_detail(media: NumberedMedia, used: Packed, rendered: Packed, hunk: Hunk) -> str | None:
    """Return how media differ where a hunk begins with an id of one; None where it begins with text."""
    ours = media.medium_at(used, hunk.start) if hunk.start < hunk.stop else None
    theirs = media.medium_at(rendered, hunk.begin) if hunk.begin < hunk.end else None
    if ours is None and theirs is None:
        return None
    before = media.medium_at(used, hunk.start - 1), media.medium_at(rendered, hunk.begin - 1)
    if None not in before and (ours == before[0] or theirs == before[1]):
        return _lengths(*before)
    if ours is None or theirs is None:
        return _missing(media, ours, theirs, used, rendered)
    if used[hunk.start] in rendered or rendered[hunk.begin] in used:
        return f"range moved: {_named(ours)} is in use where the rendering has {_named(theirs)}"
    return f"changed {ours.modality}: {_named(ours)} is in use, the rendering has {_named(theirs)}"


def _lengths(used: MediaRange | None, rendered: MediaRange | None) -> str | None:
    """Return that one medium has two lengths."""
    if used is None or rendered is None:
        return None
    both = f"{used.length} in use, {rendered.length} in the rendering"
    return f"other number of placeholder ids: {_named(used)} has {both}"


def _missing(
    media: NumberedMedia, ours: MediaRange | None, theirs: MediaRange | None, used: Packed, rendered: Packed
) -> str | None:
    """Return what is known of a medium that stands on one side where the other has text, or nothing."""
    one, ids, where = (ours, rendered, "the rendering") if ours else (theirs, used, "the ids in use")
    if one is None:
        return None
    number = (used if ours else rendered)[one.offset]
    if number in ids:
        return f"range moved: {_named(one)} begins at id {ids.index(number)} of {where}"
    if media.placeholders(ids):
        return f"{where} has another number of placeholders than the messages have media"
    return f"{_named(one)} is missing in {where}"


def _named(one: MediaRange) -> str:
    return f"{one.modality} {one.identity:.{IDENTITY}}"
