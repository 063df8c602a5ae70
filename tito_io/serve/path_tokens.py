"""The tokens of one path as runs of text, each run by one origin: prompt, sampled, tool result and so on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter

import attrs

from tito_core.drift.diff import find_hunks, packed
from tito_core.ledger import Origin, Span
from tito_core.media.expansion import collapse
from tito_core.media.ranges import MediaRange
from tito_core.step import Step

SHOWN = 50_000
"""How many ids of a path a page shows, the newest ones."""
DETAILED = 5_000
"""How many of those it shows token by token; older ones are the text of their run, to keep the page small."""
CHARACTERS = 400_000
"""About how many characters of text it shows: a token may be 100 spaces."""
CHUNK = 1_000
"""How many ids are decoded at once, so that `CHARACTERS` is exceeded by little."""


def changed_ids(used: Sequence[int], rendered: Sequence[int], close: Sequence[int]) -> bytearray:
    """Return a 1 for each id of `used` that `rendered` changes; turns end with the first id of `close`.

    >>> list(changed_ids([1, 5, 6, 2, 1, 7, 2], [1, 56, 2, 1, 7, 2], [2]))   # 5, 6 would have become 56
    [0, 1, 1, 0, 0, 0, 0]
    """
    marks = bytearray(len(used))
    for hunk in find_hunks(packed(used), packed(rendered), close[:1]):
        marks[hunk.start : hunk.stop] = b"\x01" * (hunk.stop - hunk.start)
    return marks


def changed_prompt_ids(step: Step, rendered: Sequence[int], close: Sequence[int]) -> bytearray:
    """Return a 1 for each prompt id of `step` that `rendered` changes; all ids of a medium or none.

    A template renders placeholders, so that they are compared with those of the step's media.
    """
    ids, places = collapse(step.prompt_ids, step.media)
    changed, end, marks = changed_ids(ids, rendered, close), 0, bytearray()
    for one, place in zip(step.media, places, strict=True):
        marks += changed[end : place.offset]
        marks += bytes([any(changed[place.offset : place.stop])]) * one.length
        end = place.stop
    return marks + changed[end:]


@attrs.frozen
class TokenPiece:
    """A token, or the text of several.

    Attributes:
        text: The text.
        id: The token's id; None for the text of several tokens.
        drift: Whether a fresh render of the messages would have other ids here.
    """

    text: str
    id: int | None
    drift: bool


@attrs.frozen
class TokenRun:
    """Adjacent ids of one turn that have one origin.

    Attributes:
        origin: Who wrote them.
        length: How many ids the run has.
        drift: How many of them a fresh render of the messages would change.
        pieces: Their text; empty for a medium.
        medium: The medium whose ids they are, None for text.
    """

    origin: Origin
    length: int
    drift: int
    pieces: tuple[TokenPiece, ...]
    medium: MediaRange | None = None


@attrs.frozen(kw_only=True)
class PathTokens:
    """Reads the tokens of a path; each token is decoded once.

    Attributes:
        ids: All ids of the path.
        spans: Who wrote them.
        ends: Where each turn of the path ends, in ids.
        drift: A 1 for each id of the prompt that a fresh render would change.
        spell: Returns the text of one id.
        decode: Returns the text of several ids; None where there is no vocabulary.
        media: Where media stand in the ids. Each is a run of its own, and its ids are not decoded.
    """

    ids: Sequence[int]
    spans: Sequence[Span]
    ends: Sequence[int]
    drift: Sequence[int]
    spell: Callable[[int], str]
    decode: Callable[[list[int]], str] | None
    media: Sequence[MediaRange] = ()

    def runs(self) -> tuple[list[list[TokenRun]], int]:
        """Return the runs of each turn, and how many ids before them are left out."""
        starts = [span.start for span in self.spans]
        media = {one.offset: one for one in self.media}
        borders = {*starts, *media, *(one.stop for one in self.media)}
        total, left = len(self.ids), CHARACTERS
        first, detailed = (self._outside(max(total - size, 0)) for size in (SHOWN, DETAILED))
        steps = map(self._outside, range(first, total, CHUNK))
        cuts = {*borders, *self.ends, *steps, first, detailed, total}
        turns: list[list[TokenRun]] = [[] for _ in self.ends]
        for start, stop in reversed(list(pairwise(sorted(cut for cut in cuts if cut >= first)))):
            if left <= 0:
                first = stop
                break
            runs, drift = turns[bisect_right(self.ends, start)], sum(self.drift[start:stop])
            if start in media:
                runs.append(TokenRun(Origin.MEDIA, stop - start, drift, (), media[start]))
                continue
            pieces = list(self._tokens(start, stop) if start >= detailed else self._texts(start, stop))
            left -= sum(len(piece.text) for piece in pieces)
            span, length = bisect_right(starts, start) - 1, stop - start
            if runs and stop not in borders:  # a later part of the same run stands there already
                later = runs.pop()
                drift, length, pieces = later.drift + drift, later.length + length, [*pieces, *later.pieces]
            runs.append(TokenRun(self.spans[span].origin, length, drift, tuple(pieces)))
        return [runs[::-1] for runs in turns], first

    def _outside(self, place: int) -> int:
        """Return a position, or the beginning of the medium that it is inside of."""
        number = bisect_right(self.media, place, key=attrgetter("offset")) - 1
        inside = number >= 0 and place < self.media[number].stop
        return self.media[number].offset if inside else place

    def _tokens(self, start: int, stop: int) -> Iterator[TokenPiece]:
        for place in range(start, stop):
            index = self.ids[place]
            text = f"{index} " if self.decode is None else self.spell(index)
            yield TokenPiece(text, index, self._drifts(place))

    def _texts(self, start: int, stop: int) -> Iterator[TokenPiece]:
        for drifts, places in groupby(range(start, stop), self._drifts):
            ids = [self.ids[place] for place in places]
            text = "".join(f"{index} " for index in ids) if self.decode is None else self.decode(ids)
            yield TokenPiece(text, None, drifts)

    def _drifts(self, place: int) -> bool:
        return place < len(self.drift) and bool(self.drift[place])
