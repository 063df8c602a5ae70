"""Locate where the template's text after an assistant turn begins.

Only ids come back, so the place is found by difference: the same conversation is rendered with a short text
in the turn and with a longer one. The longer render must be the shorter one with ids inserted at a single
place. Then the text occurs once, nothing else was derived from it, and no id spans the place. Whatever the
shorter render has after that place, the template wrote.

Where the template goes on with the character that the longer text goes on with, the ids may have been
inserted at two places, as with a tokenizer of characters. A text that goes on with another character decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeVar

import attrs

from ..media.ranges import places
from ..message import Message
from ..questions import Questions, ask

S = TypeVar("S", str, tuple[int, ...])

SHORT = "Zephyr"
LONGER, LONGER_TOO = "Zephyr marmot", "Zephyr\nso"
"""The short text and more. A space and a line break begin new tokens in every tokenizer that splits words."""
BLOCK = 256
"""How many ids are compared at once."""
OTHER = "4096"
"""A text that shares no character with the short one."""


@attrs.frozen
class Seam:
    """A render, and the place in it where an assistant's own text ends.

    Attributes:
        ids: The render.
        place: Position of the first id after the text.
        said: The text to write in another render that is compared with this one.
        text: What the ids of that text end with, wherever it is written.
    """

    ids: tuple[int, ...]
    place: int
    said: str = attrs.field(default=SHORT, eq=False, repr=False)
    text: tuple[int, ...] = attrs.field(eq=False, repr=False)

    @text.default
    def _text(self) -> tuple[int, ...]:
        return self.ids[max(self.place - 1, 0) : self.place]

    @property
    def tail(self) -> tuple[int, ...]:
        """All ids after the text."""
        return self.ids[self.place :]

    def ends(self, ids: Sequence[int]) -> bool:
        """Return whether another render of the text `said` ends with the text and the tail.

        The text shows that nothing is written between the two, and that no merge reaches across the place.
        """
        return self.rest(ids) == ()

    def rest(self, ids: Sequence[int], cut: int = 0) -> tuple[int, ...] | None:
        """Return what another render has between the last such text and the tail from `cut` on.

        It is None if the render does not end with that tail, and with the id before it, or lacks the text.
        """
        end = (*self.text[-1:], *self.tail)[cut:]
        before = tuple(ids[: len(ids) - len(end) + 1])
        found = list(places(self.text, before)) if tuple(ids[-len(end) :]) == end else []
        return before[found[-1] + len(self.text) :] if found else None


class Unlocated(Enum):
    """Why the end of a turn's text is not located."""

    UNWRITTEN = "the template writes nothing of it"
    UNCLEAR = "the template repeats, measures or merges it"


def seam_questions(
    write: Callable[[str], Sequence[Message]],
    *,
    speaking: bool = True,
    since: str | None = None,
    sure: bool = False,
) -> Questions[Seam | Unlocated]:
    """Ask where a text ends in the conversation that `write` makes of it; the last question is seldom needed.

    `speaking` and `since` are those of a `Question`. The result is that of `find_seam`. `sure` asks the last
    question always: where words take the space after them into their tokens, and the close begins with a
    space, the others do not show it.
    """
    short = yield from ask(write(SHORT), add_generation_prompt=speaking, since=since)
    longer = yield from ask(write(LONGER), add_generation_prompt=speaking, since=since)
    if short == longer:
        return Unlocated.UNWRITTEN
    seam = find_seam(short, longer)
    if insertions(short, longer) and (seam is None or sure):
        other = yield from ask(write(LONGER_TOO), add_generation_prompt=speaking, since=since)
        seam = find_seam(short, longer, other)
    return seam or Unlocated.UNCLEAR


def find_seam(short: Sequence[int], *longer: Sequence[int]) -> Seam | None:
    """Return the seam of `short`, or None if its text was lost, repeated, measured or merged.

    Each of `longer` is a render of the same conversation with a text that goes on.

    >>> find_seam([1, 50, 9, 2], [1, 50, 51, 9, 2])
    Seam(ids=(1, 50, 9, 2), place=2)
    >>> find_seam([1, 9, 2], [1, 9, 2]) is None                          # the template dropped the text
    True
    >>> find_seam([1, 50, 9, 50, 2], [1, 50, 51, 9, 50, 51, 2]) is None  # it wrote the text twice
    True
    >>> find_seam([1, 59, 2], [1, 50, 51, 9, 2]) is None                 # 50 and 9 merged to 59
    True
    >>> find_seam([1, 50, 9, 2], [1, 50, 9, 51, 9, 2]) is None           # before or after the first 9?
    True
    """
    places = [insertions(short, ids) for ids in longer]
    first, last = max(found.start for found in places), min(found.stop for found in places) - 1
    if not first == last > 0:
        return None
    added = longer[0][first : first + len(longer[0]) - len(short)]
    return Seam(tuple(short), first, LONGER, (*short[first - 1 : first], *added))


def insertions(short: Sequence[int], longer: Sequence[int]) -> range:
    """Return the positions in `short` at which a run of ids can have been inserted to make `longer`.

    >>> list(insertions([1, 9, 2], [1, 9, 8, 9, 2])), list(insertions([1, 2], [3, 4, 5]))
    ([1, 2], [])
    """
    if len(longer) <= len(short):
        return range(0)
    return range(len(short) - common_prefix(short[::-1], longer[::-1]), common_prefix(short, longer) + 1)


def common_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """Return how many ids, or characters, two sequences share at their beginning.

    >>> common_prefix([1, 2, 3], [1, 2, 4])
    2
    """
    count, end = 0, min(len(first), len(second))
    while count < end and first[count : count + BLOCK] == second[count : count + BLOCK]:
        count += BLOCK  # by slices: ten times as fast as id by id
    for place in range(count, end):
        if first[place] != second[place]:
            return place
    return end


def grown(short: S, longer: S, count: int) -> bool:
    """Return whether `longer` is `short` with a run inserted at `count` places: twice, four times, and so on.

    Twice at least, so that ids which stand beside the run for another reason are not taken for a part of it.

    >>> grown((1, 9, 2), (1, 7, 7, 9, 2), 1), grown((1, 9, 2), (1, 7, 7, 5, 5, 9, 2), 1)
    (True, False)
    >>> grown((1, 9, 2, 9), (1, 7, 7, 9, 2, 7, 7, 7, 7, 9), 2)
    True
    """
    size, left = divmod(len(longer) - len(short), max(count * (count + 1), 1))
    if size < 1 or left:
        return False
    place, run = 0, longer[:0]
    for times in range(2, 2 * count + 1, 2):
        same = common_prefix(short[place:], longer[place:])
        place += same
        run = run or longer[place : place + size]
        if longer[place : place + size * times] != run * times:
            return False
        longer = longer[:place] + longer[place + size * times :]
    return short == longer


def after(text: Sequence[int], ids: Sequence[int]) -> tuple[int, ...] | None:
    """Return the ids after `text` in `ids`, or None if `text` does not occur exactly once.

    >>> after([5, 6], [1, 5, 6, 2]), after([5], [5, 1, 5]) is None
    ((2,), True)
    """
    run, whole = tuple(text), tuple(ids)
    found = list(places(run, whole)) if run else []
    return whole[found[0] + len(run) :] if len(found) == 1 else None
