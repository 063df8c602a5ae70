"""A log-probability for every id, from the ids just before it and nothing else.

So a prompt that is scored gives what its sampling gave, as with an engine whose weights did not change. The
values are drawn, not learned; the alternatives shown beside an id share what probability it leaves.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from struct import pack as packed
from struct import unpack

from .rng import digest

REACH = 3
"""How many ids before an id its log-probability depends on."""
LOWEST = -9.0


def pack(ids: Sequence[int]) -> bytes:
    """Return ids as bytes, four each."""
    return array("I", ids).tobytes()


def logprob(before: Sequence[int], chosen: int) -> float:
    """Return the log-probability of `chosen` after `before`: finite, below 0, exact in 32 bits.

    >>> logprob([1, 2, 3], 7) == logprob([9, 1, 2, 3], 7), logprob([1], 7) < 0
    (True, True)
    """
    part = digest("logprob", pack(before[-REACH:]), chosen) / 2**64
    return _single(LOWEST * part**4 - 2**-12)


def alternatives(before: Sequence[int], chosen: int, count: int, size: int) -> list[tuple[int, float]]:
    """Return up to `count` other ids with their log-probabilities, the most probable first.

    Together with `chosen` they are an engine's top `count` ids: one fewer where `chosen` is among those.
    """
    value = logprob(before, chosen)
    rest = -math.expm1(value)
    found: dict[int, float] = {}
    place = 0
    while len(found) < count:
        other = digest("other", pack(before[-REACH:]), place) % size
        place += 1
        if other != chosen and other not in found:
            found[other] = _single(math.log(rest) - (len(found) + 1) * math.log(2))
    among = count > sum(1 for other in found.values() if other > value)
    return list(found.items())[: count - 1 if among else count]


def rank(before: Sequence[int], chosen: int) -> int:
    """Return the place of `chosen` among all ids, 1 for the most probable.

    >>> rank([], 5) >= 1
    True
    """
    value = logprob(before, chosen)
    above = (math.log(-math.expm1(value)) - value) / math.log(2)
    return max(math.ceil(above), 1)


def _single(value: float) -> float:
    """Round to 32 bits, the precision that engines compute in."""
    rounded: float = unpack("f", packed("f", value))[0]
    return rounded
