"""Every sampled id of every call trains exactly once over all rows, or is named as untrained; no other does.

Rows are made in one pass: what stays is decided first, then where rows end, then which row trains which
turn. Parents are found by ids alone, so a row's ids are those that an engine saw, from its first id on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

import attrs

from ..errors import InputError
from .call import StoredCall
from .forest import Forest
from .leave_out import LeaveOutReason, left_out
from .options import ConversationScope, Cut, Owner, Rewards, RowPer, SampleOptions, TurnRule
from .row import Draft, Row, row


@attrs.frozen(kw_only=True)
class Untrained:
    """Sampled ids that are trained in no row: `completion_ids[start:stop]` of a call."""

    call: str
    start: int
    stop: int
    why: LeaveOutReason


@attrs.frozen(kw_only=True)
class RowSet:
    """The rows of a forest, and what is not in them."""

    rows: tuple[Row, ...]
    """By the key of their calls. Each trains something."""
    untrained: tuple[Untrained, ...]
    """What was sampled and trains in no row, by the key of the calls."""
    without_row: tuple[str, ...]
    """Leaves (or calls) that stay and would give a row that trains nothing, so that they give none."""


EVERYTHING = SampleOptions()


def make_rows(
    forest: Forest, options: SampleOptions = EVERYTHING, *, only: Collection[str] | None = None
) -> RowSet:
    """Turn a forest into training rows.

    `only` names the leaves (for a row per call: the calls) that get a row; what the others would have
    trained moves to a row that contains it, or is reported. Raises `InputError` where `only` names something
    else, where a conversation has two different rewards to broadcast, or where the routed experts of a row's
    calls differ in kind.

    >>> from tito_core import Step
    >>> def call(name, prompt_ids, completion_ids, reward=None):
    ...     return StoredCall(name=name, reward=reward, step=Step(
    ...         prompt=[], completion=[], prompt_ids=prompt_ids, completion_ids=completion_ids))
    >>> forest = Forest.of([call("a", [1], [2, 3]), call("b", [1, 2, 3, 9], [4]),
    ...                     call("c", [1, 2, 3, 8], [5], 0.5)])
    >>> for made in make_rows(forest).rows:
    ...     print(made.name, made.ids.tolist(), list(made.loss_mask), made.reward, made.weight)
    b [1, 2, 3, 9, 4] [0, 1, 1, 0, 1] 0.5 0.75
    c [1, 2, 3, 8, 5] [0, 0, 0, 0, 1] 0.5 0.25
    >>> last = make_rows(forest, SampleOptions(max_length=4), only=["c"])
    >>> last.rows[0].ids.tolist(), [(one.call, one.why.name) for one in last.untrained]
    ([1, 2, 3], [('b', 'NOT_ASKED_FOR'), ('c', 'TOO_LONG')])
    """
    lost = left_out(forest, options)
    drafts = [_draft(path, options) for path in _paths(forest, options, lost, only)]
    owners = _owners(drafts, options)
    owned: dict[str, set[str]] = {draft.call.name: set() for draft in drafts}
    for name, draft in owners.items():
        owned[draft.call.name].add(name)
    kept = [draft for draft in drafts if owned[draft.call.name]]
    return RowSet(
        rows=tuple(_rows(forest, kept, owned, options)),
        untrained=tuple(_untrained(forest, options, lost, drafts, owners)),
        without_row=tuple(draft.call.name for draft in drafts if not owned[draft.call.name]),
    )


def _paths(
    forest: Forest, options: SampleOptions, lost: Mapping[str, LeaveOutReason], only: Collection[str] | None
) -> Iterator[tuple[StoredCall, ...]]:
    """Yield the calls on the way to each row's own."""
    staying = [node.name for node in forest.nodes if node.name not in lost]
    continued = {forest[name].parent for name in staying} if options.rows is RowPer.LEAF else set()
    wanted = [name for name in staying if name not in continued]
    if only is not None:
        _check(only, forest, wanted, lost)
        wanted = [name for name in wanted if name in set(only)]
    for name in wanted:
        yield tuple(forest[above].call for above in forest.path(name))


def _check(
    only: Collection[str], forest: Forest, wanted: Sequence[str], lost: Mapping[str, LeaveOutReason]
) -> None:
    """Refuse names that could never have a row; those that the options leave out are merely left out."""
    for name in only:
        if forest[name].name not in {*wanted, *lost}:
            raise InputError(
                f"only names {name!r:.60}, which others continue: give leaves, or rows=RowPer.CALL"
            )


def _draft(path: tuple[StoredCall, ...], options: SampleOptions) -> Draft:
    """Decide where a row ends."""
    whole, most = path[-1].stop, options.max_length
    if most is None or whole <= most:
        return Draft(path=path, length=whole)
    if options.cut is Cut.INSIDE:
        return Draft(path=path, length=most)
    fitting = [call.stop for call in path if call.start < call.stop <= most]
    return Draft(path=path, length=max(fitting, default=0))


def _owners(drafts: Sequence[Draft], options: SampleOptions) -> dict[str, Draft]:
    """Return for each call the row that trains it: the first, in the order of preference, that has it."""
    owners: dict[str, Draft] = {}
    for draft in _preferred(drafts, options.owner):
        for call in _own(draft, options):
            if draft.contained(call) and options.rule(call.ending) is not TurnRule.MASK:
                owners.setdefault(call.name, draft)
    return owners


def _preferred(drafts: Sequence[Draft], owner: Owner) -> Sequence[Draft]:
    """Return the drafts, which come by their key, the preferred ones first."""
    if owner is Owner.LONGEST:
        return sorted(drafts, key=lambda draft: -draft.call.stop)
    return drafts if owner is Owner.FIRST else drafts[::-1]


def _rows(
    forest: Forest, kept: Sequence[Draft], owned: Mapping[str, Collection[str]], options: SampleOptions
) -> Iterator[Row]:
    """Yield the rows, each with its conversation's reward and its share of what trains there."""
    trees = {name: tree[0] for tree in forest.trees for name in tree}
    units = trees if options.conversation is ConversationScope.TREE else dict.fromkeys(trees, "")
    rewards = _rewards(forest, units) if options.rewards is Rewards.BROADCAST else {}
    counts = {
        draft.call.name: sum(
            draft.contained(call) for call in draft.path if call.name in owned[draft.call.name]
        )
        for draft in kept
    }
    totals = dict.fromkeys(units.values(), 0)
    for name, count in counts.items():
        totals[units[name]] += count
    for draft in kept:
        name = draft.call.name
        yield row(
            draft,
            owned[name],
            options.missing_row,
            weight=counts[name] / totals[units[name]],
            tree=trees[name],
            reward=rewards.get(units[name]) if options.rewards is Rewards.BROADCAST else draft.call.reward,
        )


def _rewards(forest: Forest, units: Mapping[str, str]) -> dict[str, float]:
    """Return the one reward of each conversation that has any."""
    found: dict[str, tuple[str, float]] = {}
    for call in forest.calls:
        if call.reward is None:
            continue
        name, reward = found.setdefault(units[call.name], (call.name, call.reward))
        if reward != call.reward:
            raise InputError(
                f"calls {name!r} and {call.name!r} of one conversation have the rewards {reward} and "
                f"{call.reward}: give one, or choose Rewards.PER_LEAF or Conversation.TREE"
            )
    return {unit: reward for unit, (_, reward) in found.items()}


def _untrained(
    forest: Forest,
    options: SampleOptions,
    lost: Mapping[str, LeaveOutReason],
    drafts: Sequence[Draft],
    owners: Mapping[str, Draft],
) -> Iterator[Untrained]:
    """Yield what trains in no row."""
    shown = {call.name for call in chain.from_iterable(_own(draft, options) for draft in drafts)}
    for call in forest.calls:
        start = owners[call.name].contained(call) if call.name in owners else 0
        size = call.stop - call.start
        if start < size:
            yield Untrained(call=call.name, start=start, stop=size, why=_why(call, options, lost, shown))


def _own(draft: Draft, options: SampleOptions) -> Sequence[StoredCall]:
    """Return the calls that a row may train."""
    return draft.path if options.rows is RowPer.LEAF else draft.path[-1:]


def _why(
    call: StoredCall, options: SampleOptions, lost: Mapping[str, LeaveOutReason], shown: Collection[str]
) -> LeaveOutReason:
    if call.name in lost:
        return lost[call.name]
    if call.name not in shown:
        return LeaveOutReason.NOT_ASKED_FOR
    return LeaveOutReason.MASKED if options.rule(call.ending) is TurnRule.MASK else LeaveOutReason.TOO_LONG
