"""What each arm trains: rows of ids, with a mask and the log-probabilities that the loss compares with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import attrs

from tito_core import Step
from tito_core.samples import row_of
from tito_io.families import Family

from .rollout import Rollout
from .setting import END, HEADER, Setting

TURN = re.compile(rf"{re.escape(HEADER)}assistant\n(.*?{re.escape(END)})", re.DOTALL)


@attrs.frozen(kw_only=True)
class Arm:
    """A way to make training rows; everything else is the same for all.

    Attributes:
        name: The arm's name.
        exact: Whether ids are kept from sampling to training. Else each prompt, and in the end the row, is
            rendered from messages.
        recomputes: Whether the trainer computes the old log-probabilities. Else they are the sampler's.
        filters: Whether rollouts are dropped that a render would change.
        says: What it does, for the page.
    """

    name: str
    exact: bool
    recomputes: bool = False
    filters: bool = False
    says: str


ARMS: Mapping[str, Arm] = {
    one.name: one
    for one in (
        Arm(name="tito", exact=True, says="exact ids and masks, sampled log-probabilities"),
        Arm(
            name="mito-recomputed",
            exact=False,
            recomputes=True,
            says="rendered at each turn and in the end; the trainer computes old log-probabilities",
        ),
        Arm(
            name="mito-by-place",
            exact=False,
            says="rendered likewise; sampled log-probabilities by place in each turn, cut to the shorter",
        ),
        Arm(
            name="tito-filtered",
            exact=True,
            filters=True,
            says="exact ids; rollouts that a render would change are dropped",
        ),
    )
}


@attrs.frozen(kw_only=True)
class TrainingRow:
    """One sequence to train.

    Attributes:
        ids: All ids.
        places: Positions of the ids that train, ascending.
        old: For each of these, the sampler's log-probability at this place of its turn.
        sampled: For each of these, whether the sampler wrote this id at this place of its turn.
        rollout: Index of the game.
    """

    ids: list[int]
    places: list[int]
    old: list[float]
    sampled: list[bool]
    rollout: int


def exact_rows(rollout: Rollout, index: int) -> Iterator[TrainingRow]:
    """Yield the rows of the exact ids; several where a prompt did not go on from the turn before."""
    steps = [*rollout.steps]
    ends = [one for one, after in pairwise(steps) if not after.prompt_ids.starts_with(one.ids)]
    for end in (*ends, steps[-1]):
        row = row_of(end, steps)
        places = [place for place, trains in enumerate(row.loss_mask) if trains]
        old = [float(row.logprobs[place] or 0.0) for place in places]
        yield TrainingRow(
            ids=row.input_ids.tolist(),
            places=places,
            old=old,
            sampled=[True] * len(places),
            rollout=index,
        )


def render(rollout: Rollout, setting: Setting, family: Family) -> tuple[list[int], list[range]]:
    """Return the ids of a finished game's messages, and where its turns stand in them."""
    text = family.text(rollout.messages, tools=list(setting.tools) or None)
    offsets = family.tokenizer.encode(text, add_special_tokens=False).offsets
    turns = [
        [place for place, (start, _) in enumerate(offsets) if found.start(1) <= start < found.end(1)]
        for found in TURN.finditer(text)
    ]
    return family.encode(text), [range(turn[0], turn[-1] + 1) for turn in turns]


def rendered_row(rollout: Rollout, index: int, rendered: tuple[list[int], list[range]]) -> TrainingRow:
    """Return the row of a render, whose turns are paired with the sampled ones by place.

    An id at a place at which nothing was sampled has no log-probability: `paired` leaves it out.
    """
    ids, turns = rendered
    steps = [*rollout.steps]
    if len(turns) != len(steps):  # a turn that spells the end of a message
        turns = turns[: len(steps)]
    places, old, sampled = list[int](), list[float](), list[bool]()
    for turn, step in zip(turns, steps, strict=False):
        values = [float(value or 0.0) for value in step.logprobs or ()]
        own = step.completion_ids.tolist()
        for number, place in enumerate(turn):
            places.append(place)
            old.append(values[number] if number < len(values) else float("nan"))
            sampled.append(number < len(own) and own[number] == ids[place])
    return TrainingRow(ids=ids, places=places, old=old, sampled=sampled, rollout=index)


def paired(row: TrainingRow) -> TrainingRow:
    """Return a row that trains only the ids at places at which something was sampled.

    >>> both = {"ids": [5, 6], "places": [0, 1], "sampled": [True, False]}
    >>> paired(TrainingRow(**both, old=[-1.0, float("nan")], rollout=0)).places
    [0]
    """
    kept = [place for place, value in enumerate(row.old) if value == value]  # noqa: PLR0124  # not a number
    return attrs.evolve(
        row,
        places=[row.places[place] for place in kept],
        old=[row.old[place] for place in kept],
        sampled=[row.sampled[place] for place in kept],
    )


def drifted(steps: Sequence[Step], ids: Sequence[int]) -> bool:
    """Whether the render of a finished game differs from what was sampled, in a turn or in a prompt."""
    return any(list(ids[: len(step.ids)]) != step.ids.tolist() for step in steps)


@attrs.frozen
class Batch:
    """The rows of an update, and how its games were sampled.

    Attributes:
        rows: What trains.
        advantages: For each row, its reward less the mean of its group.
        drifted: Whether each game's render differs from its ids.
    """

    rows: list[TrainingRow]
    advantages: list[float]
    drifted: list[bool]


def batch_of(arm: Arm, games: Sequence[Rollout], setting: Setting, family: Family) -> Batch:
    """Return the rows that an arm trains of the games of an update."""
    renders = [render(game, setting, family) for game in games]
    changed = [drifted([*game.steps], ids) for game, (ids, _) in zip(games, renders, strict=True)]
    kept = [place for place in range(len(games)) if not (arm.filters and changed[place])]
    rows = list[TrainingRow]()
    for place in kept:
        if arm.exact:
            rows += exact_rows(games[place], place)
        else:
            row = rendered_row(games[place], place, renders[place])
            rows.append(row if arm.recomputes else paired(row))
    wins = advantages([(games[place].group, games[place].reward) for place in kept])
    by_game = dict(zip(kept, wins, strict=True))
    return Batch(rows, [by_game[row.rollout] for row in rows], changed)


def advantages(rewards: Sequence[tuple[int, float]]) -> list[float]:
    """Return each reward less the mean of its group.

    >>> advantages([(0, 1.0), (0, 0.0), (1, 1.0)])
    [0.5, -0.5, 0.0]
    """
    groups = {group: [one for other, one in rewards if other == group] for group, _ in rewards}
    return [reward - sum(groups[group]) / len(groups[group]) for group, reward in rewards]
