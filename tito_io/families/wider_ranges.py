"""Make an image's range wider, where a tokenizer merges the image's text with the id beside it.

A processor may write line ends around an image. With a line end of the template they can be one id, which
belongs to the image's range then: the ids of its placeholder are the template's line end and the image token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import attrs

from tito_core import Origin
from tito_core.bridge import Extension
from tito_core.expansion import first_media, first_runs
from tito_core.join import NextPrompt
from tito_core.ledger import Run
from tito_core.media import MediaRange
from tito_core.seams.spans import MessageSpan

P = TypeVar("P", bound=NextPrompt)

WIDTHS = ((0, 0), (1, 0), (0, 1), (1, 1))
"""Ids before and after a placeholder that may belong to the image, the fewest first."""


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
            yield [
                attrs.evolve(one, offset=start, length=stop - start, collapsed=tuple(ids[start:stop]))
                for one, (start, stop) in zip(media, places, strict=True)
            ]


def widened(prompt: P, ranges: Sequence[MediaRange]) -> P | None:
    """Return a prompt whose new media have these `ranges` in its added ids.

    None if some of those ids are not the environment's.
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
    """Return runs whose media have more ids before and after; None if those are not the environment's."""
    origins, counts = [origin for origin, _ in runs], [count for _, count in runs]
    media = [place for place, origin in enumerate(origins) if origin is Origin.MEDIA]
    for place, both in zip(media, more, strict=True):
        for beside, count in zip((place - 1, place + 1), both, strict=True):
            if count and not (0 <= beside < len(runs) and origins[beside] is Origin.ENVIRONMENT):
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
