"""Trajectories: the steps so far, which share the prefixes that they extend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import attrgetter

import attrs

from .checks import require
from .match import NOTHING, PromptMatcher
from .message import Messages
from .shared import Shared
from .step import Step


@attrs.frozen(init=False, eq=False, repr=False)
class Trajectory(Shared[Step]):
    """Steps in the order in which they were committed; they may branch.

    Appending costs what is new in the step. A step made by `Stitched.then` shares its history already. One
    made from plain lists is compared with the steps before it and shares from then on. A pickle, and what
    `tito_core.data.to_data` returns, hold each message and id once, too.

    Attributes:
        part: The last step, alone in a tuple; empty for the empty trajectory.
        parent: The trajectory that this one extends.
        length: Number of steps.
        longest: Number of messages of the longest step.

    >>> def turn(prompt, completion, prompt_ids, completion_ids):
    ...     return Step(prompt=[{"role": "user", "content": text} for text in prompt],
    ...                 completion=[{"role": "assistant", "content": completion}],
    ...                 prompt_ids=prompt_ids, completion_ids=completion_ids)
    >>> trajectory = Trajectory().append(turn(["hi"], "hello", [1, 2], [3]))
    >>> len(trajectory), trajectory[-1].ids
    (1, Ids([1, 2, 3]))
    """

    longest: int = attrs.field(init=False)

    @longest.default
    def _longest(self) -> int:
        before = self.older.longest if self.older else 0
        return max([before, *(step.messages.length for step in self.part)])

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        """Append `steps` in their order. Raises `InputError` for anything that is not a `Step`."""
        require(steps, Iterable, "steps", "an iterable of Step")
        self.__attrs_init__(())
        grown = reduce(Trajectory.append, steps, self)
        self.__attrs_init__(grown.part, grown.parent)

    def append(self, step: Step) -> Trajectory:
        """Return this trajectory followed by `step`. Raises `InputError` for anything else."""
        require(step, Step, "step", "a Step, such as Stitched.then returns")
        longer = type(self).__new__(type(self))
        longer.__attrs_init__((_sharing(self, step),), self if self.length else None)
        return longer

    def __reduce__(self) -> tuple[object, ...]:
        from .delta import deltas, joined  # noqa: PLC0415  # only pickles need it

        return joined, (type(self), deltas(self))

    def __repr__(self) -> str:
        return f"Trajectory({len(self)} steps, longest {self.longest} messages)"


def longest_first(steps: Sequence[Step], limit: int) -> Iterator[Step]:
    """Yield the steps of at most `limit` messages, longest first, and of equals the latest first.

    The newest step is given without a search if none can be longer.
    """
    if steps:
        newest = steps[-1]
        longest = steps.longest if isinstance(steps, Trajectory) else limit
        if newest.messages.length in (limit, longest) and newest.messages.length <= limit:
            yield newest
            steps = steps.older or () if isinstance(steps, Trajectory) else list(steps)[:-1]
    # In C: a loop in Python over a thousand steps takes as long as comparing the messages.
    shortest_first = sorted(steps, key=attrgetter("messages.length"))
    yield from (step for step in reversed(shortest_first) if step.messages.length <= limit)


def _sharing(steps: Trajectory, step: Step) -> Step:
    """Return `step` sharing the step that it extends, its ids packed; as it is where it does both."""
    prompt, ids = step.prompt, step.prompt_ids
    base = None if prompt.parent is not None else _base(steps, step)
    if base is not None:
        prompt = Messages(tuple(prompt[base.messages.length :]), base.messages)
        ids = base.ids.then(ids[base.ids.length :])
    packed, sampled = ids.packed(), step.completion_ids.packed()
    if prompt is step.prompt and packed is step.prompt_ids and sampled is step.completion_ids:
        return step
    return attrs.evolve(step, prompt=prompt, prompt_ids=packed, completion_ids=sampled)


def _base(steps: Trajectory, step: Step) -> Step | None:
    """Return the longest step that `step` repeats exactly, messages and ids."""
    wanted = PromptMatcher(step.prompt, NOTHING)
    for candidate in longest_first(steps, step.prompt.length):
        if wanted.fits(candidate.messages) == NOTHING and step.prompt_ids.starts_with(candidate.ids):
            return candidate
    return None
