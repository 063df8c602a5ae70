"""One training row: the ids of a call, who wrote each of them, and which of them train."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

import attrs

from ..ids import PACKED, Ids
from ..ledger import Origin
from ..media.ranges import MediaRange
from ..sampling_mask import SamplingMask
from .auxiliary import Agent
from .call import Ending, StoredCall, weight_runs
from .experts import MissingRow, RowExperts, merge_experts
from .row_mask import row_mask


@attrs.frozen(kw_only=True)
class RowSpan:
    """Consecutive ids of a row with one origin, from one call, by the same weights.

    Attributes:
        origin: Who wrote the ids.
        start: Position of the first id in the row.
        stop: Position after the last one.
        call: Name of the call that sampled the ids, or whose prompt had them first. None for ids that a
            prompt's ledger calls sampled, by a call that is not in the forest.
        weights: The weights that sampled them; None where unknown.
        trained: Whether the ids train in this row.
    """

    origin: Origin
    start: int
    stop: int
    call: str | None
    weights: str | None
    trained: bool


@attrs.frozen(kw_only=True)
class RowTurn:
    """A sampled turn in a row.

    Attributes:
        call: Name of the call.
        start: Position of the turn's first sampled id in the row.
        stop: Position after its last one, or the end of the row if that is earlier.
        finish_reason: As the engine gave it.
        ending: How the turn ended.
        trained: Whether the turn trains in this row.
        reward: Reward of the call itself; None without one.
        reward_to_go: Sum of the rewards of the call and of its conversation's calls of no smaller order; None
            where no call of the conversation has one.
        weight: The turn's share of its conversation's trained ids; 0 where it does not train. The turns of
            all rows of a conversation sum to one.
    """

    call: str
    start: int
    stop: int
    finish_reason: str | None
    ending: Ending
    trained: bool
    reward: float | None
    reward_to_go: float | None
    weight: float


@attrs.frozen(kw_only=True, repr=False)
class Row:
    """One sequence for a trainer. `loss_mask`, `logprobs` and `ledger` cover each position of `ids`.

    Attributes:
        name: Name of the call that the ids belong to.
        ids: All ids of the call, or the first of them, in one packed part of four bytes per id.
        loss_mask: One byte per id: 1 on ids that train in this row, which are all sampled, else 0.
        logprobs: The engine's natural-log probability of each sampled id, whether it trains here or not.
            None elsewhere. With a sampling mask they are normalized over it (`processed_logprobs`).
        sampling_mask: For each of `ids` the ids that could have been sampled there; none where the id was not
            sampled. None without any.
        ledger: Spans without gap or overlap.
        turns: Sampled turns, oldest first.
        media: Where images and other media stand in `ids`, each with its identity.
        experts: Routed experts; None where no call has any.
        left_out: Number of the call's ids beyond the maximum length.
        reward: Reward as `SampleOptions.rewards` chooses it; None without one.
        weight: The row's share of its conversation's trained ids. The rows of a conversation sum to one.
        tree: Name of the first call of the tree that the row belongs to.
        follows: Name of the call whose conversation the row's first prompt goes on from in fewer words, by a
            summary or a part of it (`EdgeKind.COMPACTS`); None where it does not.
        agent: Which agent of the rollout made the row's calls.
        metadata: Metadata of the call.
        auxiliary: Whether the row is a call beside a conversation (see `auxiliary_calls`).
        trained: Number of ids that train.
    """

    name: str
    ids: Ids
    loss_mask: bytes
    logprobs: tuple[float | None, ...]
    ledger: tuple[RowSpan, ...]
    turns: tuple[RowTurn, ...]
    media: tuple[MediaRange, ...] = ()
    experts: RowExperts | None
    sampling_mask: SamplingMask | None
    left_out: int
    reward: float | None
    weight: float
    tree: str
    follows: str | None
    agent: Agent
    metadata: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Row({self.name!r}, {len(self)} ids, {self.trained} of them trained)"

    @property
    def auxiliary(self) -> bool:
        """Whether the row is an auxiliary call, beside a conversation."""
        return self.agent is Agent.AUXILIARY

    @property
    def trained(self) -> int:
        """Number of ids that train."""
        return self.loss_mask.count(1)

    @property
    def processed_logprobs(self) -> bool:
        """Whether `logprobs` are normalized over `sampling_mask`, not as the engine's own options say."""
        return self.sampling_mask is not None


@attrs.frozen(kw_only=True)
class RowDraft:
    """A row before it is decided what it trains: the calls from the root on, and the ids to keep of them."""

    path: tuple[StoredCall, ...]
    length: int

    @property
    def call(self) -> StoredCall:
        """The row's own call, the last of the path."""
        return self.path[-1]

    def kept_ids(self, call: StoredCall) -> int:
        """Return how many sampled ids of a call on the path are in the row."""
        return max(min(call.stop, self.length) - call.start, 0)

    def trained(self, owned: Collection[str]) -> int:
        """Return how many ids train where the row trains the calls in `owned`."""
        return sum(self.kept_ids(call) for call in self.path if call.name in owned)


@attrs.frozen(kw_only=True)
class RowPlace:
    """The place of a row in its forest; see `Row`."""

    tree: str
    follows: str | None
    agent: Agent


def write_row(
    draft: RowDraft,
    owned: Collection[str],
    missing: MissingRow,
    total: int,
    place: RowPlace,
    reward: float | None,
    to_go: Mapping[str, float | None],
) -> Row:
    """Write the row that trains the calls in `owned`; linear in its length.

    `total` ids of the conversation train, and `to_go` has the rewards to go of its calls.

    Raises `InputError` where only some calls with log-probabilities have a sampling mask, or where their
    routed experts differ in kind.
    """
    ledger = tuple(_spans(draft, owned))
    experts = (
        # No forward pass followed the last sampled id.
        (call.name, call.stop - (call.start < call.stop), call.routed_experts)
        for call in draft.path
        if call.routed_experts is not None
    )
    return Row(
        name=draft.call.name,
        ids=Ids(array(PACKED, draft.call.ids.tobytes())[: draft.length]),
        loss_mask=b"".join(bytes((span.trained,)) * (span.stop - span.start) for span in ledger),
        logprobs=tuple(islice(_logprobs(draft.path), draft.length)),
        ledger=ledger,
        turns=tuple(
            RowTurn(
                call=call.name,
                start=call.start,
                stop=min(call.stop, draft.length),
                finish_reason=call.finish_reason,
                ending=call.ending,
                trained=call.name in owned,
                reward=call.reward,
                reward_to_go=to_go[call.name],
                weight=draft.kept_ids(call) / total if call.name in owned else 0.0,
            )
            for call in draft.path
            if draft.kept_ids(call)
        ),
        media=tuple(one for one in draft.call.step.media if one.stop <= draft.length),
        experts=merge_experts(experts, draft.length, missing),
        sampling_mask=row_mask(((call.name, call.step) for call in draft.path), draft.length),
        left_out=draft.call.stop - draft.length,
        reward=reward,
        weight=draft.trained(owned) / total,
        tree=place.tree,
        follows=place.follows,
        agent=place.agent,
        metadata=draft.call.metadata,
    )


def _logprobs(path: Sequence[StoredCall]) -> Iterator[float | None]:
    """Yield one log-probability per id, None where the engine gave none."""
    end = 0
    for call in path:
        logprobs = call.step.logprobs
        yield from repeat(None, call.start - end)
        yield from repeat(None, call.stop - call.start) if logprobs is None else logprobs
        end = call.stop


def _spans(draft: RowDraft, owned: Collection[str]) -> Iterator[RowSpan]:
    """Yield the spans up to the row's length."""
    start = 0
    for origin, count, call, weights in _runs(draft.path):
        stop = min(start + count, draft.length)
        if start < stop:
            trained = origin is Origin.SAMPLED and call is not None and call in owned
            yield RowSpan(origin=origin, start=start, stop=stop, call=call, weights=weights, trained=trained)
            start = stop


def _runs(path: Sequence[StoredCall]) -> Iterator[tuple[Origin, int, str | None, str | None]]:
    """Yield (origin, ids, call, weights): what a prompt adds to the turn before, then its completion."""
    end = 0
    for call in path:
        for origin, count in call.step.prompt_ledger.since(end):
            # A prompt's ledger may know of a sampled turn whose call is not in the forest.
            yield origin, count, None if origin is Origin.SAMPLED else call.name, None
        for version, count in weight_runs(call.weight_versions, call.stop - call.start):
            yield Origin.SAMPLED, count, call.name, version
        end = call.stop
