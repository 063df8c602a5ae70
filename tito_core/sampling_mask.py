"""Sampling masks: for each sampled id, the ids that top-p, top-k and min-p had kept when it was sampled."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import Self

import attrs

from .errors import InputError
from .ids import PACKED, Ids


def _packed_ids(ids: Sequence[int]) -> Ids:
    return Ids.of(ids, "ids of a sampling mask").packed()


def _packed_counts(counts: Sequence[int]) -> Ids:
    return Ids.of(counts, "counts of a sampling mask").packed()


@attrs.frozen(repr=False)
class SamplingMask:
    """The ids that could have been sampled at each position, flat; equal to any mask of the same ids.

    The distribution that sampled an id was normalized over these ids alone, and so is its log-probability.
    A trainer that normalizes over the whole vocabulary compares it with another distribution.

    Attributes:
        ids: The kept ids of all positions, one position after the other, four bytes each.
        counts: How many of `ids` belong to each position. 0 where no mask is known: nothing was sampled
            there, or the engine sent none.

    Raises:
        InputError: An id or a count is no whole number from 0 to 2**32 - 1, or `counts` do not add up to the
            number of ids.

    >>> mask = SamplingMask([7, 5, 9], [2, 0, 1])
    >>> [list(kept) for kept in mask], mask == SamplingMask.of([[7, 5], None, [9]])
    ([[7, 5], [], [9]], True)
    """

    ids: Ids = attrs.field(converter=_packed_ids)
    counts: Ids = attrs.field(converter=_packed_counts)

    @counts.validator
    def _add_up(self, _: object, counts: Ids) -> None:
        if sum(counts) != len(self.ids):
            raise InputError(
                f"counts of a sampling mask add up to {sum(counts)}, it has {len(self.ids)} ids: give one "
                "count for each position, and that many ids"
            )

    @classmethod
    def of(cls, kept: Iterable[Sequence[int] | None]) -> Self:
        """Return the mask of one list of ids for each position, as engines send them; None for no mask.

        >>> SamplingMask.of([7, 5])
        Traceback (most recent call last):
        tito_core.errors.InputError: kept is [7, 5]: give a list of ids or None for each position
        """
        try:
            lists = [() if one is None else one for one in kept]
            return cls(tuple(chain.from_iterable(lists)), tuple(map(len, lists)))
        except TypeError:
            raise InputError(f"kept is {kept!r:.60}: give a list of ids or None for each position") from None

    @classmethod
    def placed(cls, masks: Iterable[tuple[int, SamplingMask]], length: int) -> Self | None:
        """Return the mask of `length` positions in which each of `masks` begins at its own; None without any.

        What is beyond the length is cut. Linear in the result.

        >>> SamplingMask.placed([(1, SamplingMask([7, 5, 9], [2, 1]))], 2)
        SamplingMask(2 positions, 2 ids)
        """
        given = sorted(masks, key=itemgetter(0))
        ids, counts = array(PACKED), array(PACKED, bytes(4 * length))
        for start, mask in given:
            cut = mask.first(length - start)
            ids.frombytes(cut.ids.tobytes())
            counts[start : start + len(cut)] = array(PACKED, cut.counts)
        return cls(Ids(ids), Ids(counts)) if given else None

    def first(self, length: int) -> Self:
        """Return the mask of the first positions, at most `length`.

        >>> SamplingMask([7, 5, 9], [2, 1]).first(1)
        SamplingMask(1 positions, 2 ids)
        """
        if length >= len(self):
            return self
        counts = self.counts[: max(length, 0)]
        return type(self)(tuple(self.ids[: sum(counts)]), tuple(counts))

    def require(self, sampled: Sequence[int], name: str) -> None:
        """Raise `InputError` unless each of the `sampled` ids is in its own mask, if that has any ids.

        >>> SamplingMask([7, 5, 9], [2, 1]).require([5, 7], "completion_ids")
        Traceback (most recent call last):
        tito_core.errors.InputError: sampling_mask[1] lacks 7, the id of completion_ids[1]: ...
        """
        if len(self) != len(sampled):
            raise InputError(
                f"sampling_mask has {len(self)} positions for {len(sampled)} {name}: give one for each id"
            )
        for place, (one, kept) in enumerate(zip(sampled, self, strict=True)):
            if kept and one not in kept:
                raise InputError(
                    f"sampling_mask[{place}] lacks {one}, the id of {name}[{place}]: it is the mask of "
                    "another position, or of another completion"
                )
            if len(kept) > 1 and len(set(kept)) < len(kept):
                raise InputError(f"sampling_mask[{place}] has an id twice: a mask has each id once")

    def __iter__(self) -> Iterator[Sequence[int]]:
        ids = array(PACKED, self.ids)
        return (ids[start:stop] for start, stop in pairwise(accumulate(self.counts, initial=0)))

    def __len__(self) -> int:
        return len(self.counts)

    def __repr__(self) -> str:
        return f"SamplingMask({len(self)} positions, {len(self.ids)} ids)"
