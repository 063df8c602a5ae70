"""The ids, loss mask and log-probabilities of one step, for trainers that keep their own steps."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import attrs

from ..checks import require
from ..errors import InputError
from ..ids import PACKED
from ..sampling_mask import SamplingMask
from ..step import Step
from .row_mask import row_mask


@attrs.frozen(kw_only=True, eq=False, repr=False)
class WholeRow:
    """Prompt and completion of a step as a training sequence. All have one item per id, and share no memory.

    numpy and torch read them without a copy: `numpy.asarray(row.input_ids)`,
    `numpy.frombuffer(row.loss_mask, "u1")`, and `numpy.asarray(row.logprobs)` where a `fill` was given.

    Attributes:
        input_ids: All ids, in unsigned integers of four bytes.
        loss_mask: One byte per id: 1 on each id that a known step sampled, else 0.
        logprobs: The engine's natural-log probability of each id with mask 1. Elsewhere `fill`: a list with
            None if `fill` is None, else an array of eight-byte floats.
        sampling_mask: For each id with mask 1 the ids that could have been sampled there; None without any.
    """

    input_ids: array[int]
    loss_mask: bytes
    logprobs: list[float | None] | array[float]
    sampling_mask: SamplingMask | None

    def __len__(self) -> int:
        return len(self.input_ids)

    def __repr__(self) -> str:
        return f"WholeRow({len(self)} ids, {self.loss_mask.count(1)} of them sampled)"


def row_of(step: Step, earlier: Iterable[Step] = (), *, fill: float | None = None) -> WholeRow:
    """Return the prompt and completion of a step with mask and log-probabilities; linear in the ids.

    Only the step that sampled an id knows its log-probability. So an id of the prompt has mask 1 only if one
    of the `earlier` steps sampled it, and this prompt begins with all ids of that step. Ids that the ledger
    calls sampled, by a step that is not given, have mask 0. `make_rows` decides likewise. It also chooses one
    row for each turn where several steps continue one; here each row has all of its turns.

    Args:
        step: The step whose prompt and completion become the row.
        earlier: Steps that may have come before it, in any order, such as its trajectory; others are ignored.
        fill: What stands where the mask is 0. A number gives an array, None a list.

    Raises:
        InputError: `step` or an earlier one is not a `Step`, or `fill` is neither a number nor None. Or it is
            a number, and a sampled id has no log-probability: the fill would be taken for one.
            Or only some of the steps have sampling masks.

    >>> first = Step(prompt=[], completion=[], prompt_ids=[1, 2], completion_ids=[3], logprobs=[-0.5])
    >>> second = Step(prompt=[], completion=[], prompt_ids=[1, 2, 3, 4], completion_ids=[5], logprobs=[-0.25])
    >>> row = row_of(second, [first])
    >>> row.input_ids.tolist(), list(row.loss_mask), row.logprobs
    ([1, 2, 3, 4, 5], [0, 0, 1, 0, 1], [None, None, -0.5, None, -0.25])
    >>> alone = row_of(second, fill=0.0)
    >>> list(alone.loss_mask), alone.logprobs.tolist()
    ([0, 0, 0, 0, 1], [0.0, 0.0, 0.0, 0.0, -0.25])
    """
    require(step, Step, "step", "a Step")
    if fill is not None and (isinstance(fill, bool) or not isinstance(fill, float | int)):
        raise InputError(f"fill is {fill!r:.60}: give a number or None")
    input_ids = array(PACKED)
    input_ids.frombytes(step.ids.tobytes())
    mask = bytearray(len(input_ids))
    logprobs: list[float | None] = [fill] * len(mask)
    turns = [step, *_history(step, _checked(earlier))]
    for one in turns:
        start, stop = one.prompt_ids.length, one.ids.length
        mask[start:stop] = b"\1" * (stop - start)
        logprobs[start:stop] = one.logprobs or [None] * (stop - start)
    return WholeRow(
        input_ids=input_ids,
        loss_mask=bytes(mask),
        logprobs=logprobs if fill is None else _numbers(logprobs),
        sampling_mask=row_mask(((f"step of {len(one.ids)} ids", one) for one in turns), len(mask)),
    )


def _checked(earlier: Iterable[Step]) -> list[Step]:
    require(earlier, Iterable, "earlier", "the steps before this one")
    steps = list(earlier)
    for position, one in enumerate(steps):
        require(one, Step, f"earlier[{position}]", "a Step")
    return steps


def _history(step: Step, earlier: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps that the prompt of `step` continues, newest first; of equal ids the latest."""
    newest = step
    for one in sorted(earlier, key=lambda one: one.ids.length)[::-1]:
        if _begins(one, newest):
            yield one
            newest = one


def _begins(one: Step, later: Step) -> bool:
    """Return whether the prompt of `later` begins with all ids of `one`, and shows the same media there."""
    start, stop = one.prompt_ids.length, one.ids.length
    # Most branches differ in what they sampled: reading only that is cheap, and reading all ids is not.
    if later.prompt_ids[start:stop] != list(one.completion_ids):
        return False
    same_media = later.media[: one.media.length] == list(one.media)
    return same_media and later.prompt_ids.starts_with(one.ids)


def _numbers(logprobs: Sequence[float | None]) -> array[float]:
    """Return log-probabilities as an array. Raises `InputError` naming the first that is missing."""
    try:
        return array("d", logprobs)  # type: ignore[arg-type]  # a None raises the error below
    except TypeError:
        position = logprobs.index(None)
        raise InputError(
            f"the sampled id at position {position} has no log-probability: request them from the engine, or "
            "leave fill out"
        ) from None
    except OverflowError:
        raise InputError("fill or a log-probability is too large for a float: leave it out") from None
