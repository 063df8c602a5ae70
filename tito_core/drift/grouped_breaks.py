"""Hunks that are told of together: a spelling that changes again and again is one break, not one a token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from .cause import Found
from .diff import Hunk
from .place import HunkPlace

NEAR = 16
"""Ids that may agree between two hunks of one break."""


@attrs.frozen
class ExplainedHunk:
    """A hunk with where it lies and why."""

    hunk: Hunk
    place: HunkPlace
    found: tuple[Found, ...]
    sampled: int
    """Sampled ids that it changes."""

    def joins(self, other: ExplainedHunk) -> bool:
        """Tell whether a later hunk is more of the same, close behind."""
        alike = self.place.owner is other.place.owner and self.place.part is other.place.part
        same = [cause for cause, _ in self.found] == [cause for cause, _ in other.found]
        return alike and same and other.hunk.start - self.hunk.stop < NEAR

    def join(self, other: ExplainedHunk) -> ExplainedHunk:
        """Return one for both, with what agrees between them."""
        hunk = Hunk(self.hunk.start, other.hunk.stop, self.hunk.begin, other.hunk.end)
        return attrs.evolve(self, hunk=hunk, sampled=self.sampled + other.sampled)


def joined(pieces: Iterable[ExplainedHunk]) -> Iterator[ExplainedHunk]:
    """Put together what follows closely and is more of the same."""
    held: ExplainedHunk | None = None
    for piece in pieces:
        if held is not None and held.joins(piece):
            held = held.join(piece)
            continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held
