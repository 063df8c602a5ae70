"""Locate a difference: the calls that wrote the ids, and the part of a turn in which it begins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import attrs

from ..message import Message
from ..samples.call import StoredCall
from ..samples.forest import Forest
from .breaks import TurnPart
from .cause import part_at
from .diff import Hunk, Packed


@attrs.frozen(kw_only=True)
class Region:
    """Ids `start` to `stop` of a path: a call's completion (`sampled`), or what its prompt adds before it.

    `before` is, for what a prompt adds, the call whose completion ends there; None for the first prompt.
    """

    call: StoredCall
    start: int
    stop: int
    sampled: bool
    before: StoredCall | None = None

    def overlap(self, hunk: Hunk) -> int:
        """Return how many ids of a hunk are in the region."""
        return max(min(self.stop, hunk.stop) - max(self.start, hunk.start), 0)


def regions(forest: Forest, name: str, *, completion: bool, down_to: int) -> Iterator[Region]:
    """Yield the regions of a call's prompt ids (with `completion`: of all its ids), the last first.

    Regions that end before the position `down_to` are left out.

    >>> from tito_core import Step
    >>> def call(name, prompt_ids, completion_ids):
    ...     return StoredCall(name=name, step=Step(prompt=[], completion=[], prompt_ids=prompt_ids,
    ...                                      completion_ids=completion_ids))
    >>> forest = Forest.of([call("a", [1], [2, 3]), call("b", [1, 2, 3, 4], [5])])
    >>> [(one.call.name, one.start, one.stop, one.sampled)
    ...  for one in regions(forest, "b", completion=True, down_to=0)]
    [('b', 4, 5, True), ('b', 3, 4, False), ('a', 1, 3, True), ('a', 0, 1, False)]
    """
    call, parent = forest[name].call, forest[name].parent
    if completion:
        yield Region(call=call, start=call.start, stop=call.stop, sampled=True)
    while True:
        before = None if parent is None else forest[parent].call
        start = 0 if before is None else before.stop
        if call.start >= down_to:
            yield Region(call=call, start=start, stop=call.start, sampled=False, before=before)
        if before is None or start < down_to:
            return
        yield Region(call=before, start=before.start, stop=start, sampled=True)
        call, parent = before, forest[before.name].parent


@attrs.frozen(kw_only=True)
class HunkPlace:
    """The place of a hunk in the used ids.

    Attributes:
        region: The first completion that has any of its ids, else the region that it begins in.
        turn: The sampled turn whose text or close differs; None where no turn's does.
        part: The part of the turn that the hunk begins in.
        stop: Position of the turn's stop, or where the turn was cut.
        cut: Whether the hunk reaches the end of a turn that was cut short.
        seam: Whether the hunk ends with a turn's stop or close.
        sampled: All completions that have ids of the hunk.
    """

    region: Region
    turn: StoredCall | None
    part: TurnPart
    stop: int = 0
    cut: bool = False
    seam: bool = False
    sampled: tuple[Region, ...]

    @property
    def owner(self) -> StoredCall:
        """The call that the difference is counted for."""
        return self.region.call if self.turn is None else self.turn


def message_of(turn: StoredCall | None) -> Message | None:
    """Return the one message that a turn was parsed to; None where it is not one."""
    return turn.step.completion[0] if turn is not None and turn.step.completion.length == 1 else None


def locate_hunk(
    hunk: Hunk,
    newest_first: Sequence[Region],
    used: Packed,
    markers: Collection[int],
    text: Callable[[Sequence[int]], str],
) -> HunkPlace:
    """Return where a hunk of the `used` ids lies.

    Args:
        hunk: The difference.
        newest_first: The regions that the hunk may lie in, from `regions`.
        used: The ids that were used.
        markers: The ids that templates write at the borders of turns.
        text: Decodes ids.
    """
    ordered = newest_first[::-1]
    sampled = tuple(region for region in ordered if region.sampled and region.overlap(hunk))
    region = sampled[0] if sampled else [one for one in ordered if one.start <= hunk.start][-1]
    turn = region.call if region.sampled else region.before
    opener = not region.sampled and _in_generation_prompt(used, region, hunk.start, markers)
    if turn is None or opener:
        part = TurnPart.OPENER if opener else TurnPart.PROMPT
        return HunkPlace(region=region, turn=None, part=part, sampled=sampled)
    # The close ends with the first marker after the turn: the turn's own, or that of the next turn's opener.
    close_end = next((at + 1 for at in range(turn.stop, len(used)) if used[at] in markers), len(used))
    stop = turn.stop - (turn.step.stop is not None)
    # Ids inserted right before a stop that stays are more text, not a changed close.
    inserted = hunk.start == hunk.stop == stop < turn.stop
    if hunk.start >= stop and hunk.stop <= close_end and not inserted:
        part = TurnPart.CLOSE
    elif region.sampled:
        part = _sampled_part(turn, hunk.start, text)
    else:
        return HunkPlace(region=region, turn=None, part=TurnPart.ENVIRONMENT, sampled=sampled)
    covers_stop = hunk.start <= stop < hunk.stop <= close_end and not turn.step.truncated
    return HunkPlace(
        region=region,
        turn=turn,
        part=part,
        stop=stop,
        cut=turn.step.truncated and hunk.start <= turn.stop <= hunk.stop,
        seam=part is TurnPart.CLOSE or covers_stop,
        sampled=sampled,
    )


def _in_generation_prompt(used: Packed, region: Region, place: int, markers: Collection[int]) -> bool:
    """Return whether a place is after the last marker of a prompt, where the generation prompt is."""
    marker_after = any(number in markers for number in used[place : region.stop])
    return not marker_after and any(number in markers for number in used[region.start : place])


def _sampled_part(turn: StoredCall, start: int, text: Callable[[Sequence[int]], str]) -> TurnPart:
    ids = turn.step.completion_ids.tolist()
    place = len(text(ids[: start - turn.start])) if start > turn.start else 0
    return part_at(message_of(turn), text(ids), place)
