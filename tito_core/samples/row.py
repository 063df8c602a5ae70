"""A training row: the ids of one call, and of each id who wrote it and whether it trains."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Any

import attrs

from ..ids import PACKED, Ids
from ..ledger import Origin
from .call import Ending, StoredCall
from .experts import MissingRow, RowExperts, gathered
from .weights import runs


@attrs.frozen(kw_only=True)
class RowSpan:
    """Ids of a row from `start` to `stop` (half open) with one origin, of one call, by the same weights."""

    origin: Origin
    start: int
    stop: int
    call: str | None
    """The call that sampled these ids, or whose prompt had them first. None for ids that a prompt's ledger
    knows as sampled, by a call that is not in the forest."""
    weights: str | None
    """The weights that sampled them, where that is known."""
    trained: bool


@attrs.frozen(kw_only=True)
class RowTurn:
    """A sampled turn in a row."""

    call: str
    start: int
    stop: int
    """Where the turn ends, or the row, if that is earlier."""
    finish_reason: str | None
    ending: Ending
    trained: bool


@attrs.frozen(kw_only=True, repr=False)
class Row:
    """What a trainer needs of one sequence. Everything by position is as long as `ids`."""

    name: str
    """The call whose ids these are, or begin with these."""
    ids: Ids
    """Four bytes each, in one part."""
    loss_mask: bytes
    """One byte an id: 1 on those that train in this row, which are all sampled."""
    logprobs: tuple[float | None, ...]
    """The engine's, on all sampled ids that have one, trained here or not; None elsewhere."""
    ledger: tuple[RowSpan, ...]
    """Spans without gap or overlap."""
    turns: tuple[RowTurn, ...]
    """Sampled turns, oldest first."""
    experts: RowExperts | None
    """Routed experts, where a call has any."""
    left_out: int
    """Ids of the call that stand behind the maximum length."""
    reward: float | None
    weight: float
    """The row's share of its conversation's trained ids: all rows of a conversation sum to one."""
    tree: str
    """The first call of the tree that the row belongs to."""
    metadata: Mapping[str, Any]
    """That of the call."""

    def __len__(self) -> int:
        return self.ids.length

    def __repr__(self) -> str:
        return f"Row({self.name!r}, {len(self)} ids, {self.trained} of them trained)"

    @property
    def trained(self) -> int:
        """How many ids train."""
        return self.loss_mask.count(1)


@attrs.frozen(kw_only=True)
class Draft:
    """A row before it is known what it trains."""

    path: tuple[StoredCall, ...]
    """The calls on the way to the row's own, which is the last."""
    length: int
    """How many of its ids stay."""

    @property
    def call(self) -> StoredCall:
        """The row's own call."""
        return self.path[-1]

    def contained(self, call: StoredCall) -> int:
        """Return how many sampled ids of a call on the path stay."""
        return max(min(call.stop, self.length) - call.start, 0)


def row(
    draft: Draft, owned: Collection[str], missing: MissingRow, weight: float, tree: str, reward: float | None
) -> Row:
    """Write out a row that trains the calls in `owned`; linear in its length."""
    ledger = tuple(_spans(draft, owned))
    experts = ((call.name, call.routed_experts) for call in draft.path if call.routed_experts is not None)
    return Row(
        name=draft.call.name,
        ids=Ids(flat(draft.call.ids, draft.length)),
        loss_mask=b"".join(bytes((span.trained,)) * (span.stop - span.start) for span in ledger),
        logprobs=tuple(islice(_logprobs(draft.path), draft.length)),
        ledger=ledger,
        turns=tuple(_turns(draft, owned)),
        experts=gathered(experts, draft.length, missing),
        left_out=draft.call.stop - draft.length,
        reward=reward,
        weight=weight,
        tree=tree,
        metadata=draft.call.metadata,
    )


def flat(ids: Ids, length: int) -> array[int]:
    """Return the first ids in one part.

    >>> flat(Ids.of([1, 2]).then((3, 4)), 3)
    array('I', [1, 2, 3])
    """
    found = array(PACKED)
    for part in ids.parts():
        found.extend(part)
    del found[length:]
    return found


def _turns(draft: Draft, owned: Collection[str]) -> Iterator[RowTurn]:
    for call in draft.path:
        if draft.contained(call):
            yield RowTurn(
                call=call.name,
                start=call.start,
                stop=min(call.stop, draft.length),
                finish_reason=call.finish_reason,
                ending=call.ending,
                trained=call.name in owned,
            )


def _logprobs(path: Sequence[StoredCall]) -> Iterator[float | None]:
    """Yield one value an id: nothing is made up where there is none."""
    end, parts = 0, list[Iterable[float | None]]()
    for call in path:
        sampled = call.step.logprobs
        parts += [
            repeat(None, call.start - end),
            repeat(None, call.stop - call.start) if sampled is None else sampled,
        ]
        end = call.stop
    return chain.from_iterable(parts)


def _spans(draft: Draft, owned: Collection[str]) -> Iterator[RowSpan]:
    """Yield the spans up to the row's length."""
    start = 0
    for origin, count, call, weights in chain.from_iterable(_runs(draft.path)):
        stop = min(start + count, draft.length)
        if start < stop:
            sampled = origin is Origin.SAMPLED and call is not None
            yield RowSpan(
                origin=origin,
                start=start,
                stop=stop,
                call=call,
                weights=weights,
                trained=sampled and call in owned,
            )
            start = stop


Run = tuple[Origin, int, str | None, str | None]
"""Origin, number of ids, call, weights."""


def _runs(path: Sequence[StoredCall]) -> Iterator[Iterator[Run]]:
    end = 0
    for call in path:
        yield _brought(call, end)
        yield _sampled(call)
        end = call.stop


def _brought(call: StoredCall, start: int) -> Iterator[Run]:
    """Yield what a call's prompt has after the turn that it continues."""
    for origin, count in call.step.prompt_ledger.since(start):
        yield origin, count, None if origin is Origin.SAMPLED else call.name, None


def _sampled(call: StoredCall) -> Iterator[Run]:
    for version, count in runs(call.weight_versions, call.stop - call.start):
        yield Origin.SAMPLED, count, call.name, version
