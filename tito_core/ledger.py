"""Ledgers: who wrote each id of a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import accumulate, chain, repeat
from typing import Any, TypeAlias, cast

import attrs

from .errors import InputError
from .shared import Chain


class Origin(Enum):
    """Who wrote an id."""

    PROMPT = "rendered from messages"
    SAMPLED = "sampled by the engine"
    INSERTED_CLOSE = "the rest of a turn's close, which the engine did not sample"
    ENVIRONMENT = "tool results, user messages and other turns that the model did not sample"
    MEDIA = "an image or another medium, as the engine expanded it"
    GENERATION_PROMPT = "what the template writes where the model speaks next"


@attrs.frozen
class Span:
    """A run of ids that one origin wrote.

    Attributes:
        origin: Who wrote the ids.
        start: Position of the first id.
        stop: Position after the last id.
    """

    origin: Origin
    start: int
    stop: int


Run: TypeAlias = tuple[Origin, int]
"""An origin, and how many ids it wrote."""


def _run(run: Any) -> Run:
    """Return `run` after checking it: a wrong run would make a wrong loss mask. Raises `InputError`."""
    origin, count = run if isinstance(run, tuple | list) and len(run) == 2 else (None, 0)  # noqa: PLR2004  # a pair
    if not isinstance(origin, Origin) or type(count) is not int or count < 0:
        raise InputError(f"a run is {run!r:.60}: give an Origin, and how many ids it wrote")
    return run  # type: ignore[no-any-return]  # checked just above


@attrs.frozen(eq=False, repr=False, weakref_slot=False)
class Ledger(Chain):
    """The origin of each id, as run lengths that share what they extend.

    Attributes:
        part: Origins and counts in turn that this ledger adds to its parent.
        length: Ids in all runs.
        parent: The ledger that this one extends; None for the first.

    >>> ledger = Ledger.prompt(2).then((Origin.SAMPLED, 3), (Origin.INSERTED_CLOSE, 0))
    >>> len(ledger), ledger.mask()
    (5, [0, 0, 1, 1, 1])
    >>> [(span.origin.name, span.start, span.stop) for span in ledger.spans]
    [('PROMPT', 0, 2), ('SAMPLED', 2, 5)]
    """

    # Flat: a turn keeps one of these, and pairs would take twice the memory.
    part: tuple[Origin | int, ...] = ()
    length: int = 0
    parent: Ledger | None = None

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Ledger:
        """Return the ledger of runs of (origin, number of ids)."""
        return cls().then(*runs)

    @classmethod
    def prompt(cls, length: int) -> Ledger:
        """Return the ledger of ids that were rendered from messages."""
        return cls.of([(Origin.PROMPT, length)])

    def then(self, *runs: Run) -> Ledger:
        """Return this ledger followed by `runs` of (origin, number of ids); empty runs are left out.

        Raises `InputError` for anything else.
        """
        part: list[Origin | int] = []
        length = self.length
        for origin, count in map(_run, runs):
            if count:
                part += (origin, count)
                length += count
        return Ledger(tuple(part), length, self) if part else self

    @property
    def own(self) -> list[Run]:
        """The runs that this ledger adds to its parent."""
        return cast("list[Run]", list(zip(self.part[::2], self.part[1::2], strict=True)))

    @property
    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return [run for link in list(self.links())[::-1] for run in link.own]

    def since(self, start: int) -> list[Run]:
        """Return the runs from position `start` on, without reading those before it.

        >>> Ledger.prompt(5).then((Origin.SAMPLED, 2)).since(3)
        [(<Origin.PROMPT: 'rendered from messages'>, 2), (<Origin.SAMPLED: 'sampled by the engine'>, 2)]
        """
        newest_first: list[Run] = []
        left = self.length - start
        for origin, count in chain.from_iterable(link.own[::-1] for link in self.links()):
            if left <= 0:
                break
            newest_first.append((origin, min(count, left)))
            left -= count
        return newest_first[::-1]

    @property
    def spans(self) -> tuple[Span, ...]:
        """The runs with their positions. Adjacent runs of one origin stay separate, one per turn."""
        runs = self.runs
        stops = accumulate(count for _, count in runs)
        return tuple(Span(run[0], stop - run[1], stop) for run, stop in zip(runs, stops, strict=True))

    def mask(self) -> list[int]:
        """Return the loss mask: 1 exactly on sampled ids."""
        return [int(origin is Origin.SAMPLED) for origin in self]

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Origin]:
        return chain.from_iterable(repeat(origin, count) for origin, count in self.runs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return self.spans == other.spans

    __hash__ = None  # type: ignore[assignment]  # compared by value, never used as a key

    def __reduce__(self) -> tuple[Any, ...]:
        return Ledger.of, (self.runs,)  # a long chain would recurse

    def __repr__(self) -> str:
        return f"Ledger({', '.join(f'{span.origin.name}[{span.start}:{span.stop}]' for span in self.spans)})"
