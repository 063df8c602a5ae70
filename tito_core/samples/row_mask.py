"""The sampling mask of a row: those of its turns, each at its own ids."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import InputError
from ..sampling_mask import SamplingMask
from ..step import Step


def row_mask(turns: Iterable[tuple[str, Step]], length: int) -> SamplingMask | None:
    """Return the masks of (name, step) of a row's turns over its first `length` ids; None without any.

    Ids that no turn sampled have none: a bridge, a close, a stop that was replaced.
    Raises `InputError` if only some turns with log-probabilities have a mask: those of the others are
    normalized over other ids, and a row has one kind.

    >>> def step(prompt_ids, completion_ids, mask):
    ...     return Step(prompt=[], completion=[], prompt_ids=prompt_ids, completion_ids=completion_ids,
    ...                 logprobs=[-0.5] * len(completion_ids), sampling_mask=mask)
    >>> first = step([1], [2, 3], SamplingMask.of([[2, 8], [3]]))
    >>> second = step([1, 2, 3, 4], [5], SamplingMask.of([[6, 5]]))
    >>> list(map(list, row_mask([("a", first), ("b", second)], 5)))
    [[], [2, 8], [3], [], [6, 5]]
    >>> row_mask([("a", first), ("b", step([1, 2, 3, 4], [5], None))], 5)
    Traceback (most recent call last):
    tito_core.errors.InputError: 'a' has a sampling mask and 'b' of the same row log-probabilities without ...
    """
    sampled = [(name, step) for name, step in turns if step.completion_ids]
    masked = [
        (name, step.prompt_ids.length, mask)
        for name, step in sampled
        if (mask := step.sampling_mask) is not None
    ]
    bare = [name for name, step in sampled if step.sampling_mask is None and step.logprobs is not None]
    if masked and bare:
        raise InputError(
            f"{masked[0][0]!r} has a sampling mask and {bare[0]!r} of the same row log-probabilities without "
            "one, which are of another kind: sample all turns of a conversation with masks, or none"
        )
    return SamplingMask.placed(((start, mask) for _, start, mask in masked), length)
