"""Between placeholders and what an engine makes of them: collapsed ids go out, expanded ids come back.

A prompt that goes on has the ids of earlier media as the engine expanded them, and a placeholder for each new
medium. An engine that expands media itself takes placeholders alone, and says what it made of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TypeVar

import attrs

from .bridge import Extension
from .errors import InputError
from .ids import PACKED, Ids
from .join import NextPrompt
from .ledger import Ledger, Origin
from .media import NO_MEDIA, Media, MediaRange
from .seams.spans import MessageSpan

P = TypeVar("P", bound=NextPrompt)


def collapse(ids: Sequence[int], media: Sequence[MediaRange]) -> tuple[list[int], list[MediaRange]]:
    """Return `ids` with each medium's placeholder in place of its own ids, and where those stand then.

    Every other id is kept. `expand` is the inverse.

    >>> cat = MediaRange(modality="image", identity="cat", offset=1, length=3, collapsed=(7,))
    >>> ids, places = collapse([5, 7, 7, 7, 6], [cat])
    >>> ids, places[0].offset, places[0].length
    ([5, 7, 6], 1, 1)
    >>> expand(ids, places, [(7, 7, 7)]) == ([5, 7, 7, 7, 6], [cat])
    True
    """
    return expand(ids, media, [one.collapsed for one in media])


def expand(
    ids: Sequence[int], media: Sequence[MediaRange], pieces: Sequence[Sequence[int]]
) -> tuple[list[int], list[MediaRange]]:
    """Return `ids` with the ids in `pieces` in place of each medium's own, and where those stand then.

    Raises `InputError` if there is not one piece for each medium, or a range is not in `ids`.
    """
    if len(pieces) != len(media):
        raise InputError(f"pieces has {len(pieces)} items for {len(media)} media: give the ids of each")
    ranges = Media.of(media)
    source: list[int] = list(ids)
    if ranges and ranges[-1].stop > len(source):
        raise InputError(f"media[{len(ranges) - 1}] ends at {ranges[-1].stop} of {len(source)} ids")
    out: list[int] = []
    found, end = [], 0
    for one, piece in zip(ranges, pieces, strict=True):
        out += source[end : one.offset]
        found.append(attrs.evolve(one, offset=len(out), length=len(piece)))
        out += piece
        end = one.stop
    return out + source[end:], found


def pieces_in(
    collapsed: Sequence[int], media: Sequence[MediaRange], expanded: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return the ids of each medium in `expanded` ids, where an engine does not say its range.

    `media` are the ranges in the `collapsed` ids. What stands between two media must be found again, and at
    one place only: a medium's ids are a run of its placeholder's only id.

    Raises:
        InputError: The ids outside of the media differ, or it is not clear where a medium ends.

    >>> cat = MediaRange(modality="image", identity="cat", offset=1, length=1, collapsed=(7,))
    >>> pieces_in([5, 7, 6], [cat], [5, 7, 7, 7, 6])
    [(7, 7, 7)]
    """
    pieces: list[tuple[int, ...]] = []
    whole, grown = tuple(expanded), 0
    for place, one in enumerate(media):
        index, start = one.collapsed[0], one.offset + grown
        stop = start
        while stop < len(whole) and whole[stop] == index:
            stop += 1
        together = place + 1 < len(media) and media[place + 1].offset == one.stop
        if len(one.collapsed) > 1 or stop == start or together:
            raise InputError(f"it is not clear which ids are those of media[{place}]: give the ranges")
        pieces.append(whole[start:stop])
        grown += stop - start - one.length
    if expand(collapsed, media, pieces)[0] != list(whole):
        raise InputError("the ids outside of the media are not those that were sent")
    return pieces


def to_send(prompt: NextPrompt) -> list[int]:
    """Return a prompt's ids with every medium as its placeholder: what an engine takes that expands them."""
    return collapse(prompt.ids, prompt.media)[0]


def expanded(prompt: P, pieces: Sequence[Sequence[int]]) -> P:
    """Return a prompt with the ids of each new medium in place of its placeholder.

    Raises `InputError` if there is not one piece for each medium that is unexpanded.
    """
    if not prompt.unexpanded and not pieces:
        return prompt
    base = prompt.ids.length - len(prompt.added)
    new = [one.moved(-base) for one in prompt.media[len(prompt.media) - prompt.unexpanded :]]
    added, ranges = expand(prompt.added, new, pieces)
    ids = Ids(array(PACKED, added), prompt.ids.older)
    lengths = map(len, pieces)
    runs = [(origin, next(lengths) if origin is Origin.MEDIA else n) for origin, n in prompt.ledger.own]
    known = prompt.media.older or NO_MEDIA
    grown = attrs.evolve(
        prompt,
        ids=ids,
        added=tuple(added),
        ledger=(prompt.ledger.parent or Ledger()).then(*runs),
        media=known.then([one.moved(base) for one in ranges], ids),
        unexpanded=0,
    )
    if not isinstance(grown, Extension) or not isinstance(grown.spans, tuple):
        return grown
    more = [(one.offset, len(piece) - one.length) for one, piece in zip(new, pieces, strict=True)]
    return attrs.evolve(grown, spans=tuple(_moved(span, more) for span in grown.spans))


def _moved(span: MessageSpan, more: Sequence[tuple[int, int]]) -> MessageSpan:
    """Return where a span is once ids were added after some positions."""
    return MessageSpan(
        *(place + sum(count for start, count in more if start < place) for place in attrs.astuple(span))
    )


def echoed(prompt: P, ids: Sequence[int], ranges: Iterable[tuple[int, int]] | None = None) -> P:
    """Return a prompt as an engine expanded it.

    Args:
        prompt: The prompt of which `to_send` gave the ids that went to the engine.
        ids: The prompt that the engine saw.
        ranges: Offset and length of each medium in it, in order; None if the engine does not say.

    Raises:
        InputError: The engine saw another prompt: what it sampled does not follow this one.
    """
    saw = tuple(ids)
    named = None if ranges is None else list(ranges)
    if named is None:
        pieces = pieces_in(*collapse(prompt.ids, prompt.media), saw)
    else:
        pieces = [saw[offset : offset + length] for offset, length in named]
    grown = expanded(prompt, pieces[max(len(pieces) - prompt.unexpanded, 0) :])
    found = [(one.offset, one.length) for one in grown.media]
    if named not in (None, found) or grown.ids != saw:
        raise InputError("the engine saw another prompt than the one that was sent")
    return grown
