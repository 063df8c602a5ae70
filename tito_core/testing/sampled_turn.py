"""What an engine sampled for one assistant message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index

import attrs

from ..errors import InputError


def flat_ids(ids: Iterable[int], name: str) -> tuple[int, ...]:
    """Return ids of a list, an array or a tensor.

    Raises:
        InputError: They are no flat sequence of integers; `name` says which.

    >>> flat_ids([5, 6], "ids")
    (5, 6)
    """
    try:
        return tuple(map(index, ids))
    except TypeError as error:
        raise InputError(
            f"{name} must be a flat sequence of integers, such as [5, 6], not {type(ids).__name__}: {error}"
        ) from error


def _own_ids(ids: Iterable[int]) -> tuple[int, ...]:
    return flat_ids(ids, "SampledTurn.ids")


@attrs.frozen
class SampledTurn:
    """The ids that an engine sampled for one turn, with what else is known of them.

    Where only the ids are known, a plain list of them does.

    Attributes:
        ids: The sampled ids, with the stop token if the engine returned it.
        logprobs: One log-probability for each id; None if they are not to be compared.
        truncated: Whether the turn was cut short; None if unknown. Then the last id tells.
    """

    ids: tuple[int, ...] = attrs.field(converter=_own_ids)
    logprobs: Sequence[float | None] | None = None
    truncated: bool | None = None

    def __attrs_post_init__(self) -> None:
        """Check the number of log-probabilities, and what says whether the turn was cut."""
        if not isinstance(self.truncated, bool | None):
            raise InputError(f"truncated is {self.truncated!r:.40}: give True or False, or None if unknown")
        if self.logprobs is not None and len(self.logprobs) != len(self.ids):
            raise InputError(
                f"SampledTurn has {len(self.logprobs)} logprobs for {len(self.ids)} ids: give one for each id"
            )
