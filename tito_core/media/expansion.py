"""Collapse the ids of media to placeholders for an engine, and expand them as its answer says.

A prompt that goes on has the ids of earlier media as the engine expanded them, and a placeholder for each new
medium. An engine that expands media itself takes placeholders alone, and says what it made of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

import attrs

from ..bridge import Extension
from ..checks import require
from ..errors import InputError
from ..ids import PACKED, Ids, checked
from ..join import NextPrompt
from ..ledger import Ledger, Origin, Run
from ..seams.spans import MessageSpan
from .ranges import Media, MediaRange

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

    `media` are the ranges in the `collapsed` ids. The ids between two media must be found again, and at
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
    sent = tuple(expand(collapsed, media, pieces)[0])
    if sent != whole:
        difference = _first_difference(sent, whole)
        raise InputError(f"the ids outside of the media are not those that were sent: {difference}")
    return pieces


def to_send(prompt: NextPrompt) -> list[int]:
    """Return a prompt's ids with every medium as its placeholder: what an engine takes that expands them."""
    return collapse(prompt.ids, prompt.media)[0]


def expanded(prompt: P, pieces: Sequence[Sequence[int]]) -> P:
    """Return a prompt with the ids of each new medium in place of its placeholder.

    Raises `InputError` if there is not one piece of ids for each medium that is unexpanded.
    """
    if not prompt.unexpanded and not pieces:
        return prompt
    base, older = prompt.ids.length - len(prompt.added), len(prompt.media) - prompt.unexpanded
    new = [one.moved(-base) for one in prompt.media[older:]]
    pieces = [checked(piece, f"pieces[{place}]") for place, piece in enumerate(pieces)]
    added, ranges = expand(prompt.added, new, pieces)
    lengths = map(len, pieces)
    runs = [(one, next(lengths) if one is Origin.MEDIA else n) for one, n in prompt.ledger.since(base)]
    ids = first_ids(prompt.ids, base).then(array(PACKED, added))
    known = None if prompt.media.known is None else (ids, prompt.media.known[1])
    grown = attrs.evolve(
        prompt,
        ids=ids,
        added=tuple(added),
        ledger=first_runs(prompt.ledger, base).then(*runs),
        media=first_media(prompt.media, older).then([one.moved(base) for one in ranges], known),
        unexpanded=0,
    )
    if not isinstance(grown, Extension) or not isinstance(grown.spans, tuple):
        return grown
    more = [(one.offset, len(piece) - one.length) for one, piece in zip(new, pieces, strict=True)]
    return attrs.evolve(grown, spans=tuple(_moved(span, more) for span in grown.spans))


# The beginning is shared where it still is: a prompt that was stored holds its ids in one part.


def first_ids(ids: Ids, length: int) -> Ids:
    """Return the first `length` ids."""
    older = ids.older
    return older if older is not None and older.length == length else Ids(array(PACKED, ids[:length]))


def first_media(media: Media, length: int) -> Media:
    """Return the first `length` ranges."""
    older = media.older
    return older if older is not None and older.length == length else Media.of(media[:length])


def first_runs(ledger: Ledger, length: int) -> Ledger:
    """Return the ledger of the first `length` ids."""
    shared = ledger.parent if ledger.parent is not None and ledger.parent.length <= length else Ledger()
    left, runs = length - shared.length, list[Run]()
    for origin, count in ledger.since(shared.length):
        runs.append((origin, min(count, left)))
        left -= runs[-1][1]
    return shared.then(*runs)


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
    saw = checked(ids, "ids")
    named = None if ranges is None else _pairs(ranges)
    if named is None:
        pieces = pieces_in(*collapse(prompt.ids, prompt.media), saw)
    else:
        _check_ranges(named, len(prompt.media), len(saw))
        pieces = [saw[offset : offset + length] for offset, length in named]
    grown = expanded(prompt, pieces[max(len(pieces) - prompt.unexpanded, 0) :])
    expected = [(one.offset, one.length) for one in grown.media]
    moved = [] if named is None else [place for place, one in enumerate(named) if one != expected[place]]
    if named is not None and moved:
        raise _another(
            f"media[{moved[0]}] is at {_range(named[moved[0]])}, expected {_range(expected[moved[0]])}"
        )
    if grown.ids != saw:
        raise _another(_first_difference(tuple(grown.ids), saw))
    return grown


def _pairs(ranges: object) -> list[tuple[int, int]]:
    """Return offsets and lengths, as tuples; JSON has lists."""
    require(ranges, Iterable, "ranges", "a list of offsets and lengths, or None")
    pairs = [one if isinstance(one, list | tuple) else () for one in cast("Iterable[object]", ranges)]
    for place, one in enumerate(pairs):
        if len(one) != 2 or any(type(number) is not int or number < 0 for number in one):  # noqa: PLR2004  # a pair
            raise InputError(f"ranges[{place}] is no offset and length: give two numbers from 0")
    return [(offset, length) for offset, length in pairs]


def _check_ranges(named: Sequence[tuple[int, int]], count: int, length: int) -> None:
    """Raise `InputError` unless there is a range inside of the ids for each medium."""
    if len(named) != count:
        raise _another(f"{len(named)} media ranges, expected {count}")
    for place, (offset, size) in enumerate(named):
        if size < 1 or offset + size > length:
            raise _another(
                f"media[{place}] is at {_range((offset, size))}, which is no range of {length} ids"
            )


def _range(named: tuple[int, int]) -> str:
    return f"{named[0]} with {named[1]} ids"


def _first_difference(expected: tuple[int, ...], found: tuple[int, ...]) -> str:
    """Return the first place at which ids differ, or their numbers.

    >>> _first_difference((5, 6), (5, 7)), _first_difference((5, 6), (5,))
    ('id 1 is 7, expected 6', '1 ids, expected 2')
    """
    pairs = enumerate(zip(expected, found, strict=False))
    differences = (f"id {place} is {other}, expected {one}" for place, (one, other) in pairs if one != other)
    return next(differences, f"{len(found)} ids, expected {len(expected)}")


def _another(difference: str) -> InputError:
    return InputError(f"the engine saw another prompt than the one that was sent: {difference}")
