"""Seeded draws: the only randomness in this package, and it is none.

Everything drawn follows from the parts a `Rng` is made of, on any machine and in any process.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from struct import pack as packed
from struct import unpack
from typing import TypeVar

from attrs import field, frozen, validators

T = TypeVar("T")


def digest(*parts: bytes | str | int) -> int:
    """Return 64 bits that depend on every part and on where one part ends.

    >>> digest(1, "a") == digest(1, "a"), digest("1", "a") == digest("1a")
    (True, False)
    """
    state = blake2b(digest_size=8)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return int.from_bytes(state.digest(), "little")


class Rng:
    """A stream of draws; only `Random.random` is used, whose sequence Python promises to keep."""

    def __init__(self, *parts: bytes | str | int) -> None:
        """Fix every later draw by `parts`."""
        self._random = Random(digest(*parts))  # noqa: S311  # a repeatable sampler, not a secret

    def chance(self, rate: float) -> bool:
        """Return True in `rate` of all draws: never for 0, always for 1."""
        return self._random.random() < rate

    def between(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """Return one of `items`, which must not be empty."""
        return items[self.between(0, len(items) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return all of `items` in another order."""
        rest = list(items)
        return [rest.pop(self.between(0, len(rest) - 1)) for _ in items]


def _rate(default: float) -> float:
    """Return a field that holds a share of all turns, from 0 (never) to 1 (always)."""
    between = validators.and_(validators.ge(0.0), validators.le(1.0))
    found: float = field(default=default, validator=between, kw_only=True)
    return found


@frozen
class FaultRates:
    """How often the sampler does what, each from 0 (never) to 1 (always).

    As they stand, fifty turns show every habit at least once while three turns in four stop cleanly.

    >>> FaultRates(odd_stops=1.0).odd_stops, TIDY.odd_stops
    (1.0, 0.0)
    """

    drifts: float = _rate(0.8)
    """Ids that are not the ones a tokenizer gives for their text: `encode(decode(ids)) != ids`."""
    thinks: float = _rate(0.6)
    """A thought with words in it, where the prompt leaves room for one; else the empty thought."""
    calls: float = _rate(0.6)
    """A tool call where the prompt offers tools and a user spoke last; half as often after tool results."""
    twice: float = _rate(0.25)
    """A second call in the same turn, given a first."""
    spells_tags: float = _rate(0.2)
    """The tag of a call written with the ids of ordinary text instead of the token that is the tag."""
    malformed: float = _rate(0.12)
    """A call that is not the JSON it should be."""
    loose: float = _rate(0.3)
    """Spaces and newlines that a template trims: around thoughts, before calls, at the very end."""
    spells_special: float = _rate(0.1)
    """Text that reads like a special token, in ordinary ids."""
    runs_on: float = _rate(0.08)
    """No end at all: only a limit stops it, `finish_reason` says `length`."""
    odd_stops: float = _rate(0.08)
    """The end of all text where the end of the turn belongs."""
    half_characters: float = _rate(0.1)
    """A last character of which some bytes are missing."""
    silent: float = _rate(0.04)
    """Nothing but the end of the turn."""
    bunches: float = _rate(0.15)
    """Several ids in one event of a stream."""


TIDY = FaultRates(
    drifts=0.0,
    spells_tags=0.0,
    malformed=0.0,
    loose=0.0,
    spells_special=0.0,
    runs_on=0.0,
    odd_stops=0.0,
    half_characters=0.0,
    silent=0.0,
    bunches=0.0,
)
"""It thinks, calls and answers, and does nothing wrong: its ids are the ones that a template writes."""


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
