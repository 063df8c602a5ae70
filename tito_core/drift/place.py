"""Whose ids are they that differ, and which part of a turn do they begin in?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import attrs

from ..message import Message
from ..samples.call import StoredCall
from .breaks import TurnPart
from .cause import part_at
from .diff import Hunk, Packed
from .region import Region


@attrs.frozen(kw_only=True)
class HunkPlace:
    """Where a hunk lies in the ids in use."""

    region: Region
    """The first completion with any of its ids, else what it begins in."""
    turn: StoredCall | None
    """The sampled turn that it is about, if it is about one: its text, or its close."""
    part: TurnPart
    stop: int = 0
    """Where that turn's stop stands, or where it was cut."""
    cut: bool = False
    """Whether it reaches the end of a turn that was cut short."""
    seam: bool = False
    """Whether it ends with a turn's stop or close."""
    sampled: tuple[Region, ...]
    """All completions that it has ids of."""

    @property
    def owner(self) -> StoredCall:
        """The call that it is counted for."""
        return self.region.call if self.turn is None else self.turn


def said(turn: StoredCall | None) -> Message | None:
    """Return the message that a turn became, if it is one."""
    return turn.step.completion[0] if turn is not None and turn.step.completion.length == 1 else None


def placed(
    hunk: Hunk,
    found: Sequence[Region],
    used: Packed,
    markers: Collection[int],
    text: Callable[[Sequence[int]], str],
) -> HunkPlace:
    """Return where a hunk lies; `found` are the regions that it may lie in, the last first."""
    ordered = found[::-1]
    sampled = tuple(region for region in ordered if region.sampled and region.holds(hunk))
    region = sampled[0] if sampled else [one for one in ordered if one.start <= hunk.start][-1]
    turn = region.call if region.sampled else region.above
    asked = not region.sampled and _speaks(used, region, hunk.start, markers)
    if turn is None or asked:
        part = TurnPart.OPENER if asked else TurnPart.PROMPT
        return HunkPlace(region=region, turn=None, part=part, sampled=sampled)
    closed = _closed(used, turn.stop, markers)
    stop = turn.stop - (turn.step.stop is not None)
    inserted = hunk.start == hunk.stop == stop < turn.stop  # before a stop that stays: more text, no close
    if hunk.start >= stop and hunk.stop <= closed and not inserted:
        part = TurnPart.CLOSE
    elif region.sampled:
        part = _part(turn, hunk.start, text)
    else:
        return HunkPlace(region=region, turn=None, part=TurnPart.ENVIRONMENT, sampled=sampled)
    covers = hunk.start <= stop < hunk.stop <= closed and not turn.step.truncated
    return HunkPlace(
        region=region,
        turn=turn,
        part=part,
        stop=stop,
        cut=turn.step.truncated and hunk.start <= turn.stop <= hunk.stop,
        seam=part is TurnPart.CLOSE or covers,
        sampled=sampled,
    )


def _speaks(used: Packed, region: Region, place: int, markers: Collection[int]) -> bool:
    """Tell whether a place lies after the last marker of a prompt: in what it ends with to make a turn."""
    after = any(number in markers for number in used[place : region.stop])
    return not after and any(number in markers for number in used[region.start : place])


def _closed(used: Packed, stop: int, markers: Collection[int]) -> int:
    """Return where the first marker after a turn ends: the opener of the next, or the close of a cut one."""
    return next((place + 1 for place in range(stop, len(used)) if used[place] in markers), len(used))


def _part(turn: StoredCall, start: int, text: Callable[[Sequence[int]], str]) -> TurnPart:
    ids = turn.step.completion_ids.tolist()
    place = len(text(ids[: max(start - turn.start, 0)])) if start > turn.start else 0
    return part_at(said(turn), text(ids), place)
