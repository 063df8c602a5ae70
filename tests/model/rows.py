"""Rows: what trains, id by id, once or with a reason why not; see docs/reference/samples.md."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tests.model.forest import Calls, ids, parent, path, prompt_ids, sampled, tree
from tests.model.messages import names
from tito_core.samples import (
    ConversationScope,
    Cut,
    Owner,
    Retries,
    Rewards,
    RowPer,
    SampleOptions,
    StoredCall,
    TurnRule,
)


@dataclass
class Row:
    """One sequence for a trainer. `writers` has origin, call and weights of each id."""

    call: StoredCall
    path: list[StoredCall]
    ids: list[int]
    mask: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    writers: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    reward: float | None = None
    weight: float = 0.0


Untrained = tuple[str, int, int, str]
"""A call, the first and the last position (half-open) of ids that it sampled, and why they do not train."""


def rows(
    calls: Calls, options: SampleOptions, only: Collection[str] | None = None
) -> tuple[list[Row], list[Untrained]]:
    """Return the rows that train something, in the order of their calls, and what trains in none."""
    calls = sorted(calls, key=lambda call: call.key)
    staying = [call for call in calls if not left_out(call, calls, options)]
    above = {one.name for call in staying for one in path(call, calls)[:-1]}
    drafts = [
        Row(call, path(call, calls), ids(call)[: length(call, calls, options)])
        for call in staying
        if (options.rows is RowPer.CALL or call.name not in above) and (only is None or call.name in only)
    ]
    owners = {call.name: owner(call, drafts, options) for call in calls}
    for row in drafts:
        for place in range(len(row.ids)):
            write(row, place, owners)
    training = [row for row in drafts if any(row.mask)]
    for row in training:
        whole = options.conversation is ConversationScope.FOREST
        unit = [call for call in calls if whole or call.name in tree(row.call, calls)]
        row.weight = sum(row.mask) / sum(sum(other.mask) for other in training if other.call in unit)
        row.reward = reward(row.call, unit, options)
    return training, [
        one for call in calls for one in untrained(call, calls, drafts, owners[call.name], options)
    ]


# --- what stays ----------------------------------------------------------------------------------------


def left_out(call: StoredCall, calls: Calls, options: SampleOptions) -> str:
    """Return why a call is left out of all rows; an empty text if it stays."""
    if why := dropped(call, calls, options):
        return why
    rivals = [one for one in calls if prompt_ids(one) == prompt_ids(call) and sampled(one)]
    rivals = [one for one in rivals if not dropped(one, calls, options)] if prompt_ids(call) else [call]
    extended = [one for one in rivals if any(parent(other, calls) is one for other in calls)]
    kept = {Retries.ALL: rivals, Retries.NEWEST: rivals[-1:], Retries.EXTENDED: extended or rivals[-1:]}
    return "" if not sampled(call) or call in kept[options.retries] else "RETRIED"


def dropped(call: StoredCall, calls: Calls, options: SampleOptions) -> str:
    """Return why a call is left out for its own ending, or with the call that it continues."""
    above = parent(call, calls)
    if above and (why := left_out(above, calls, options)):
        return why
    if above and options.rule(above.ending) is TurnRule.END:
        return "AFTER_END"
    return "DROPPED" if options.rule(call.ending) is TurnRule.DROP else ""


def length(call: StoredCall, calls: Calls, options: SampleOptions) -> int:
    """Return how many ids of a call are in its row."""
    most = options.max_length or len(ids(call))
    if options.cut is Cut.INSIDE or len(ids(call)) <= most:
        return min(most, len(ids(call)))
    return max(
        [len(ids(one)) for one in path(call, calls) if sampled(one) and len(ids(one)) <= most], default=0
    )


# --- what trains ---------------------------------------------------------------------------------------


def trainable(row: Row, options: SampleOptions) -> list[StoredCall]:
    """Return the calls that a row may train."""
    return row.path if options.rows is RowPer.LEAF else row.path[-1:]


def owner(call: StoredCall, drafts: Sequence[Row], options: SampleOptions) -> Row | None:
    """Return the row that trains a turn: one of those that have any of its ids."""
    of = [row for row in drafts if call in trainable(row, options) and len(prompt_ids(call)) < len(row.ids)]
    if not of or not sampled(call) or options.rule(call.ending) is TurnRule.MASK:
        return None
    longest = max(of, key=lambda row: len(ids(row.call)))
    return {Owner.FIRST: of[0], Owner.LAST: of[-1], Owner.LONGEST: longest}[options.owner]


def write(row: Row, place: int, owners: dict[str, Row | None]) -> None:
    """Write what is known of one id: who wrote it, whether it trains here, its log-probability."""
    call = next(one for one in row.path if place < len(ids(one)))
    inside = place - len(prompt_ids(call))
    own, logprobs = inside >= 0, call.step.logprobs
    origin = "SAMPLED" if own else names(call.step.prompt_ledger)[place]
    weights = [run.version for run in call.weight_versions if run.start <= inside < run.stop]
    row.writers.append(
        (origin, call.name if own or origin != "SAMPLED" else None, weights[0] if weights else None)
    )
    row.mask.append(int(own and owners[call.name] is row))
    row.logprobs.append(logprobs[inside] if own and logprobs is not None else None)


def reward(call: StoredCall, unit: Calls, options: SampleOptions) -> float | None:
    """Return a row's reward: its own, the sum, or the only one, discounted for each later turn."""
    rewards = [one.reward for one in unit if one.reward is not None]
    if options.rewards is Rewards.SUM:
        return sum(rewards) if rewards else None
    given = rewards[0] if rewards else None
    later = [one for one in unit if one.order > call.order and sampled(one)]
    if options.rewards is Rewards.PER_LEAF or given is None:
        return call.reward if options.rewards is Rewards.PER_LEAF else None
    return given if options.discount is None else given * options.discount ** len(later)


def untrained(
    call: StoredCall, calls: Calls, drafts: Sequence[Row], owned: Row | None, options: SampleOptions
) -> list[Untrained]:
    """Return the ids of a turn that train in no row."""
    size = len(sampled(call))
    start = min(len(owned.ids) - len(prompt_ids(call)), size) if owned else 0
    masked = "MASKED" if options.rule(call.ending) is TurnRule.MASK else "TOO_LONG"
    in_row = any(call in trainable(row, options) for row in drafts)
    why = left_out(call, calls, options) or (masked if in_row else "NOT_ASKED_FOR")
    return [(call.name, start, size, why)] if start < size else []
