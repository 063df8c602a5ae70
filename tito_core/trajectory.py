"""The steps so far: an immutable sequence that shares what a step extends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import itemgetter
from typing import Any, overload

import attrs

from .errors import InputError
from .match import NOTHING, PromptMatcher
from .message import Messages
from .shared import Shared
from .step import Step


@attrs.frozen(init=False, eq=False, repr=False)
class Trajectory(Sequence[Step]):
    """Steps in the order in which they were committed; branches are welcome.

    Appending costs what is new in the step. A step made by `Stitched.then` already shares its history; one
    that was made from plain lists is compared with the step before it and then shares too.

    >>> def turn(prompt, completion, prompt_ids, completion_ids):
    ...     return Step(prompt=[{"role": "user", "content": text} for text in prompt],
    ...                 completion=[{"role": "assistant", "content": completion}],
    ...                 prompt_ids=prompt_ids, completion_ids=completion_ids)
    >>> trajectory = Trajectory().append(turn(["hi"], "hello", [1, 2], [3]))
    >>> len(trajectory), trajectory[-1].ids
    (1, Ids([1, 2, 3]))
    """

    _steps: Shared[Step]
    longest: int
    """Messages of the longest step."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        """Hold `steps` in their order."""
        if not isinstance(steps, Iterable):
            raise InputError(f"a trajectory is made of steps, not of a {type(steps).__name__}")
        self.__attrs_init__(Shared(()), 0)
        grown = reduce(Trajectory.append, steps, self)
        self.__attrs_init__(grown._steps, grown.longest)  # noqa: SLF001  # its own kind

    def append(self, step: Step) -> Trajectory:
        """Return this trajectory followed by `step`."""
        if not isinstance(step, Step):
            raise InputError(f"a trajectory holds steps, not {type(step).__name__}: see Stitched.then")
        steps = Shared((_sharing(self, step),), self._steps)
        return self._over(steps, max(self.longest, step.messages.length))

    @property
    def earlier(self) -> Sequence[Step]:
        """All steps but the last."""
        return self._steps.parent or ()

    @classmethod
    def _over(cls, steps: Shared[Step], longest: int) -> Trajectory:
        made = cls.__new__(cls)
        made.__attrs_init__(steps, longest)
        return made

    def __len__(self) -> int:
        return self._steps.length

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        return self._steps[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal to lists of steps, and lists have no hash

    def __repr__(self) -> str:
        return f"Trajectory({len(self)} steps, longest {self.longest} messages)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Trajectory, (list(self),)


def longest_first(steps: Sequence[Step], limit: int) -> Iterator[Step]:
    """Yield the steps of at most `limit` messages, longest first, and of equals the latest first.

    A trajectory whose newest step is its longest gives that one without a search.
    """
    if isinstance(steps, Trajectory) and steps:
        newest = steps[-1]
        if newest.messages.length == steps.longest <= limit:
            yield newest
            steps = steps.earlier
    sized = [(step.messages.length, step) for step in steps]
    sized.reverse()
    sized.sort(key=itemgetter(0), reverse=True)
    yield from (step for length, step in sized if length <= limit)


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
