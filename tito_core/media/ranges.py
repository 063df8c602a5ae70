"""Media in token ids: a template writes a placeholder for an image, and an engine expands it.

A step keeps the expanded ids, which the engine saw, and the range of each medium in them. A request has the
collapsed ids, with each medium's placeholder as the template wrote it, since engines expand those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Self, TypeAlias

import attrs

from ..checks import is_a, require, short_repr
from ..errors import InputError
from ..ids import Ids, checked
from ..ledger import Origin, Run
from ..normalization.media import MODALITIES
from ..shared import Shared


def _ids(ids: Sequence[int]) -> tuple[int, ...]:
    return checked(ids, "collapsed")


def _modality(name: str) -> str:
    """Return a modality that a message can have; `file` is that of a part which names no other."""
    if name not in (*MODALITIES, "file"):
        raise InputError(f"a modality is {short_repr(name)}: give one of {', '.join(MODALITIES)}, file")
    return name


@attrs.frozen(kw_only=True)
class MediaRange:
    """The range of one medium in ids.

    Attributes:
        modality: What it is: `image`, `video`, `audio` or `file`.
        identity: Which one it is: the digest of its bytes, or the caller's key.
        offset: Position of its first id.
        length: How many ids it has; expanded, or those of its placeholder.
        collapsed: The ids of its placeholder, which the template writes for any medium of this modality.

    Raises:
        InputError: A value has the wrong type, a modality is unknown, or a number is too small.
    """

    modality: str = attrs.field(converter=_modality)
    identity: str = attrs.field(validator=is_a(str))
    offset: int = attrs.field()
    length: int = attrs.field()
    collapsed: tuple[int, ...] = attrs.field(converter=_ids)

    @offset.validator
    @length.validator
    def _is_count(self, field: attrs.Attribute[int], value: object) -> None:
        least = int(field.name == "length")
        if type(value) is not int or value < least:
            raise InputError(f"{field.name} of a media range is {value!r:.60}: give a number from {least}")

    @collapsed.validator
    def _is_placeholder(self, _: object, value: tuple[int, ...]) -> None:
        if not value:
            raise InputError("collapsed is empty: give the ids that the template writes for the medium")

    @property
    def stop(self) -> int:
        """Position after its last id."""
        return self.offset + self.length

    def moved(self, by: int) -> MediaRange:
        """Return the range `by` positions further on."""
        return attrs.evolve(self, offset=self.offset + by)


@attrs.frozen(eq=False, repr=False, weakref_slot=False)
class Media(Shared[MediaRange]):
    """The media ranges of ids, in their order and without overlap.

    Attributes:
        part: The ranges that this link adds to its parent.
        parent: The ranges that this one extends; None for the first.
        length: Ranges in all.
        known: Ids in which, outside of these ranges, none of the placeholders beside them stands; None where
            that was not checked.
    """

    known: tuple[Ids, Placeholders] | None = None

    @classmethod
    def of(cls, ranges: Iterable[MediaRange], name: str = "media") -> Self:
        """Return `ranges`, checked once. Raises `InputError` that begins with `name`."""
        if isinstance(ranges, cls):
            return ranges
        require(ranges, Iterable, name, "a list of MediaRange")
        items = tuple(ranges)
        for place, one in enumerate(items):
            require(one, MediaRange, f"{name}[{place}]", "a MediaRange")
        for place, (one, other) in enumerate(pairwise(items), 1):
            if other.offset < one.stop:
                raise InputError(f"{name}[{place}] begins at {other.offset}, inside of the range before it")
        return cls(items)

    def then(self, ranges: Sequence[MediaRange], known: tuple[Ids, Placeholders] | None = None) -> Media:
        """Return these ranges followed by others, which come later in the ids; costs O(new)."""
        return Media(tuple(ranges), self if self.length else None, known)


NO_MEDIA = Media(())


@attrs.frozen
class Placeholders:
    """The ids that a template writes for a medium, by modality; a datum of the model.

    Attributes:
        runs: Modality and ids, in pairs.

    >>> Placeholders.of({"image": [7]}).find([1, 7, 7, 2])
    [(1, 'image'), (2, 'image')]
    """

    runs: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, given: PlaceholderIds | None) -> Placeholders | None:
        """Return what a caller gave, checked; None for None. Raises `InputError`."""
        if given is None or isinstance(given, Placeholders):
            return given
        require(given, Mapping, "media", "a mapping from a modality to the ids of its placeholder")
        runs = tuple((_modality(name), checked(ids, f"media[{name!r}]")) for name, ids in given.items())
        if not all(run for _, run in runs):
            raise InputError("media has a placeholder without ids: give those that the template writes")
        return cls(runs)

    def ids(self, modality: str) -> tuple[int, ...] | None:
        """Return the placeholder of a modality, None if it is unknown."""
        return dict(self.runs).get(modality)

    @property
    def longest(self) -> int:
        """Ids of the longest placeholder."""
        return max((len(run) for _, run in self.runs), default=0)

    def find(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        """Return where placeholders stand in `ids`, and of which modality; overlapping ones, too."""
        return sorted((place, name) for name, run in self.runs for place in places(run, ids))

    def stray(self, ids: Ids, media: Media) -> int | None:
        """Return the first position of a placeholder outside of the ranges of `media`; None without one.

        What was checked before is not read again.
        """
        checked_ids, placeholders = media.known or (None, None)
        is_known = checked_ids is not None and placeholders == self and ids.extends(checked_ids)
        start = max((checked_ids.length if checked_ids and is_known else 0) - self.longest + 1, 0)
        inside = _Inside(media, start)
        found = ((start + place, len(self.ids(name) or ())) for place, name in self.find(ids[start:]))
        return next((place for place, size in found if not inside.covers(place, place + size)), None)

    def spans(self, ids: Ids, place: int) -> bool:
        """Return whether a placeholder begins before `place` and ends after it."""
        start = max(place - self.longest + 1, 0)
        found = self.find(ids[start : place + self.longest - 1])
        return any(one + start < place < one + start + len(self.ids(name) or ()) for one, name in found)


PlaceholderIds: TypeAlias = Mapping[str, Sequence[int]] | Placeholders
"""The ids that a template writes for a medium, such as `{"image": [151655]}`."""


class _Inside:
    """Says whether positions that grow lie inside of the ranges that end after `start`."""

    def __init__(self, media: Media, start: int) -> None:
        newest_first = (one for link in media.links() for one in reversed(link.part))
        self.ranges = list(takewhile(lambda one: one.stop > start, newest_first))

    def covers(self, start: int, stop: int) -> bool:
        while self.ranges and self.ranges[-1].stop <= start:
            self.ranges.pop()
        return bool(self.ranges) and self.ranges[-1].offset <= start and stop <= self.ranges[-1].stop


def places(run: tuple[int, ...], ids: Sequence[int]) -> Iterator[int]:
    """Yield where `run` begins in `ids`. `index` searches at the speed of C."""
    whole = ids if isinstance(ids, list | tuple) else list(ids)
    place = -1
    for _ in range(whole.count(run[0])):
        place = whole.index(run[0], place + 1)
        if tuple(whole[place : place + len(run)]) == run:
            yield place


def media_runs(origin: Origin, start: int, stop: int, media: Iterable[MediaRange]) -> Iterator[Run]:
    """Yield the runs of the ids from `start` to `stop`, which `origin` wrote but for the media among them."""
    for one in media:
        yield origin, one.offset - start
        yield Origin.MEDIA, one.length
        start = one.stop
    yield origin, stop - start
