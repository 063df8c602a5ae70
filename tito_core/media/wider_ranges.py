"""Make an image's range wider, where a tokenizer merges the image's text with the id beside it.

A processor may write line ends around an image. With a line end of the template they can be one id, which
belongs to the image's range then: the ids of its placeholder are the template's line end and the image token.
Engines that expand images do the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import attrs

from ..bridge import Extension
from ..join import NextPrompt
from ..ledger import Origin, Run
from ..seams.spans import MessageSpan
from .expansion import first_media, first_runs
from .ranges import MediaRange

P = TypeVar("P", bound=NextPrompt)

WIDTHS = ((0, 0), (1, 0), (0, 1), (1, 1))
"""Ids before and after a placeholder that may belong to the image, the fewest first."""
RENDERED = (Origin.ENVIRONMENT, Origin.PROMPT)
"""Whose ids an image's range may take: those that a template wrote for messages."""


def wider_ranges(ids: Sequence[int], media: Sequence[MediaRange]) -> Iterator[list[MediaRange]]:
    """Yield the ranges of media in `ids`, as they are and with an id more on one side or on both.

    >>> cat = MediaRange(modality="image", identity="cat", offset=1, length=1, collapsed=(7,))
    >>> [[(one.offset, one.collapsed) for one in ranges] for ranges in wider_ranges([5, 7, 6], [cat])]
    [[(1, (7,))], [(0, (5, 7))], [(1, (7, 6))], [(0, (5, 7, 6))]]
    """
    for left, right in WIDTHS:
        places = [(one.offset - left, one.stop + right) for one in media]
        apart = all(one[1] <= other[0] for one, other in pairwise(places))
        if apart and all(start >= 0 and stop <= len(ids) for start, stop in places):
            yield [_wider(one, ids, left, right) for one in media]


def ranges_seen(
    ids: Sequence[int],
    media: Sequence[MediaRange],
    seen: Sequence[int],
    found: Sequence[tuple[int, int]],
) -> list[MediaRange] | None:
    """Return the ranges of media in the `ids` that were sent, as wide as an engine made them.

    Each is up to an id wider on a side, so that all other ids are those that the engine saw.

    Args:
        ids: The ids that were sent.
        media: The ranges of the media in them.
        seen: The ids that the engine made of them.
        found: Offset and length of each medium in `seen`, in order.

    Returns:
        The ranges; None if the engine changed ids that are not beside a medium, or names no ranges of `seen`.

    >>> cat = MediaRange(modality="image", identity="cat", offset=1, length=1, collapsed=(7,))
    >>> [one.collapsed for one in ranges_seen([5, 7, 6], [cat], [9, 7, 7, 6], [(0, 3)]) or ()]
    [(5, 7)]
    """
    if len(found) != len(media):
        return None
    sent_gaps = _gaps([(one.offset, one.stop) for one in media], ids)
    seen_gaps = _gaps([(offset, offset + length) for offset, length in found], seen)
    if sent_gaps is None or seen_gaps is None:
        return None
    cuts = [
        _cut(sent, kept, after=place > 0, before=place < len(media))
        for place, (sent, kept) in enumerate(zip(sent_gaps, seen_gaps, strict=True))
    ]
    if None in cuts:
        return None
    widths = [cut or (0, 0) for cut in cuts]
    pairs = zip(media, widths, widths[1:], strict=False)
    return [_wider(one, ids, before[1], after[0]) for one, before, after in pairs]


def _wider(one: MediaRange, ids: Sequence[int], left: int, right: int) -> MediaRange:
    """Return a range with ids more on both sides."""
    start, stop = one.offset - left, one.stop + right
    return attrs.evolve(one, offset=start, length=stop - start, collapsed=tuple(ids[start:stop]))


def _gaps(spans: Sequence[tuple[int, int]], ids: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return the ids before, between and after spans; None unless the spans stand in the ids, in order."""
    borders = [0, *(place for span in spans for place in span), len(ids)]
    if borders != sorted(borders):
        return None
    return [tuple(ids[start:stop]) for start, stop in zip(borders[::2], borders[1::2], strict=True)]


def _cut(
    sent: tuple[int, ...], kept: tuple[int, ...], *, after: bool, before: bool
) -> tuple[int, int] | None:
    """Return how many ids at the ends of `sent` to leave out, so that `kept` remain; None if none fit."""
    for last, first in WIDTHS:
        fits = first <= after and last <= before and first + last <= len(sent)
        if fits and sent[first : len(sent) - last] == kept:
            return first, last
    return None


def widened(prompt: P, ranges: Sequence[MediaRange]) -> P | None:
    """Return a prompt whose new media have these `ranges` in its added ids.

    None if some of those ids are neither the environment's nor a first prompt's.
    """
    base = prompt.ids.length - len(prompt.added)
    old = prompt.media[len(prompt.media) - len(ranges) :]
    more = [
        (one.offset - new.offset - base, new.stop + base - one.stop)
        for one, new in zip(old, ranges, strict=True)
    ]
    if not any(map(any, more)):
        return prompt
    runs = _wider_runs(prompt.ledger.since(base), more)
    if runs is None:
        return None
    older = first_media(prompt.media, len(prompt.media) - len(ranges))
    known = None if prompt.media.known is None else (prompt.ids, prompt.media.known[1])
    media = older.then([one.moved(base) for one in ranges], known)
    wide = attrs.evolve(prompt, media=media, ledger=first_runs(prompt.ledger, base).then(*runs))
    if not isinstance(wide, Extension) or not isinstance(wide.spans, tuple):
        return wide
    return attrs.evolve(wide, spans=tuple(_around(span, ranges) for span in wide.spans))


def _wider_runs(runs: Sequence[Run], more: Sequence[tuple[int, int]]) -> list[Run] | None:
    """Return runs whose media have more ids before and after; None if those are not `RENDERED`."""
    origins, counts = [origin for origin, _ in runs], [count for _, count in runs]
    media = [place for place, origin in enumerate(origins) if origin is Origin.MEDIA]
    for place, both in zip(media, more, strict=True):
        for beside, count in zip((place - 1, place + 1), both, strict=True):
            if count and not (0 <= beside < len(runs) and origins[beside] in RENDERED):
                return None
            if count:
                counts[beside] -= count
                counts[place] += count
    return None if min(counts) < 0 else list(zip(origins, counts, strict=True))


def _around(span: MessageSpan, ranges: Sequence[MediaRange]) -> MessageSpan:
    """Return a span that cuts no range: an id that a content shares with the template counts as content."""
    for one in ranges:
        inside = range(one.offset + 1, one.stop)
        starts = [one.offset if place in inside else place for place in (span.start, span.content_start)]
        stops = [one.stop if place in inside else place for place in (span.stop, span.content_stop)]
        span = MessageSpan(starts[0], stops[0], starts[1], stops[1])
    return span
