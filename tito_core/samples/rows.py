"""Turn a forest into training rows: every sampled id trains exactly once, or is reported as untrained.

Rows are made in one pass. First it is decided which calls stay, then where rows end, then which row trains
which turn. Parents are found by ids alone, so a row's ids are those that an engine saw, from its first id on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter

import attrs

from ..checks import require
from ..errors import InputError
from .auxiliary import agents
from .call import StoredCall
from .forest import Forest
from .leave_out import LeaveOutReason, left_out
from .node import EdgeKind
from .options import ConversationScope, Cut, Owner, Rewards, RowPer, SampleOptions, TurnRule
from .row import Row, RowDraft, RowPlace, write_row


@attrs.frozen(kw_only=True)
class Untrained:
    """Sampled ids that train in no row.

    Attributes:
        call: Name of the call.
        start: First of the ids, as a position in the call's `completion_ids`.
        stop: Position after the last of them.
        why: Why they do not train.
    """

    call: str
    start: int
    stop: int
    why: LeaveOutReason


@attrs.frozen(kw_only=True)
class RowSet:
    """The rows of a forest, and what is not in them.

    Attributes:
        rows: Rows sorted by the keys of their calls. Each trains at least one id.
        untrained: Sampled ids that train in no row, sorted by the keys of their calls.
        without_row: Names of leaves (calls, with `RowPer.CALL`) that stay but whose row would train nothing.
    """

    rows: tuple[Row, ...]
    untrained: tuple[Untrained, ...]
    without_row: tuple[str, ...]


DEFAULTS = SampleOptions()


def make_rows(
    forest: Forest, options: SampleOptions = DEFAULTS, *, only: Collection[str] | None = None
) -> RowSet:
    """Turn a forest into training rows.

    Args:
        forest: The calls of a rollout.
        options: What becomes a row, and what trains.
        only: Names of the leaves (calls, with `RowPer.CALL`) that get a row; None for all. A turn that
            another leaf's row would have trained moves to a row that contains it, or is reported.

    Raises:
        InputError: `forest` is not a `Forest`, or `options` not `SampleOptions`. `only` names a call that
            cannot have a row. Or a conversation has two different rewards, and `options` need one. Or a
            reward is to be discounted and a turn has the order of another call. Or the routed experts of a
            row's calls differ in kind. Or only some of a row's calls have sampling masks.

    >>> from tito_core import Step
    >>> def call(name, prompt_ids, completion_ids, reward=None):
    ...     return StoredCall(name=name, reward=reward, step=Step(
    ...         prompt=[], completion=[], prompt_ids=prompt_ids, completion_ids=completion_ids))
    >>> forest = Forest.of([call("a", [1], [2, 3]), call("b", [1, 2, 3, 9], [4]),
    ...                     call("c", [1, 2, 3, 8], [5], 0.5)])
    >>> for row in make_rows(forest).rows:
    ...     print(row.name, row.ids.tolist(), list(row.loss_mask), row.reward, row.weight)
    b [1, 2, 3, 9, 4] [0, 1, 1, 0, 1] 0.5 0.75
    c [1, 2, 3, 8, 5] [0, 0, 0, 0, 1] 0.5 0.25
    >>> last = make_rows(forest, SampleOptions(max_length=4), only=["c"])
    >>> last.rows[0].ids.tolist(), [(one.call, one.why.name) for one in last.untrained]
    ([1, 2, 3], [('b', 'NOT_ASKED_FOR'), ('c', 'TOO_LONG')])
    """
    require(forest, Forest, "forest", "a Forest: Forest.of([...])")
    require(options, SampleOptions, "options", "SampleOptions(...)")
    reasons = left_out(forest, options)
    drafts = [_draft(path, options) for path in _paths(forest, options, reasons, only)]
    owners = _owners(drafts, options)
    owned: dict[str, set[str]] = {draft.call.name: set() for draft in drafts}
    for name, draft in owners.items():
        owned[draft.call.name].add(name)
    training = [draft for draft in drafts if owned[draft.call.name]]
    return RowSet(
        rows=tuple(_rows(forest, training, owned, options)),
        untrained=tuple(_untrained(forest, options, reasons, drafts, owners)),
        without_row=tuple(draft.call.name for draft in drafts if not owned[draft.call.name]),
    )


def _paths(
    forest: Forest,
    options: SampleOptions,
    reasons: Mapping[str, LeaveOutReason],
    only: Collection[str] | None,
) -> Iterator[tuple[StoredCall, ...]]:
    """Yield for each row the calls from the root to its own; `reasons` names those that are left out."""
    staying = [node.name for node in forest.nodes if node.name not in reasons]
    continued = {forest[name].parent for name in staying} if options.rows is RowPer.LEAF else set()
    names = [name for name in staying if name not in continued]
    # A name that the options leave out is no error: which ones they leave out depends on the calls.
    for name in only or ():
        if forest[name].name not in {*names, *reasons}:
            raise InputError(
                f"only names {name!r:.60}, which other calls continue: give leaves, or rows=RowPer.CALL"
            )
    for name in names if only is None else [name for name in names if name in set(only)]:
        yield tuple(forest[above].call for above in forest.path(name))


def _draft(path: tuple[StoredCall, ...], options: SampleOptions) -> RowDraft:
    """Decide where a row ends."""
    most = options.max_length
    if most is None or path[-1].stop <= most:
        return RowDraft(path=path, length=path[-1].stop)
    if options.cut is Cut.INSIDE:
        cut = next((one.offset for one in path[-1].step.media if one.offset < most < one.stop), most)
        return RowDraft(path=path, length=cut)  # a part of an image is no image
    fitting = [call.stop for call in path if call.start < call.stop <= most]
    return RowDraft(path=path, length=max(fitting, default=0))


def _owners(drafts: Sequence[RowDraft], options: SampleOptions) -> dict[str, RowDraft]:
    """Return for each call the row that trains it: the first, by preference, that contains any of its ids.

    `drafts` are sorted by key.
    """
    if options.owner is Owner.LONGEST:
        # By the length before the cut, so that a maximum length does not change which leaf owns a turn.
        drafts = sorted(drafts, key=lambda draft: -draft.call.stop)
    elif options.owner is Owner.LAST:
        drafts = drafts[::-1]
    owners: dict[str, RowDraft] = {}
    for draft in drafts:
        for call in _trainable(draft, options):
            if draft.kept_ids(call) and options.rule(call.ending) is not TurnRule.MASK:
                owners.setdefault(call.name, draft)
    return owners


def _trainable(draft: RowDraft, options: SampleOptions) -> Sequence[StoredCall]:
    """Return the calls that a row may train."""
    return draft.path if options.rows is RowPer.LEAF else draft.path[-1:]


def _rows(
    forest: Forest, drafts: Sequence[RowDraft], owned: Mapping[str, Collection[str]], options: SampleOptions
) -> Iterator[Row]:
    """Yield the rows, each with its conversation's reward and its share of the trained ids."""
    trees = {name: tree[0] for tree in forest.trees for name in tree}
    conversations = trees if options.conversation is ConversationScope.TREE else dict.fromkeys(trees, "")
    to_go = _rewards_to_go(forest, conversations)
    rewards = _rewards(forest, conversations, options, to_go)
    agent_of, totals = agents(forest), dict.fromkeys(conversations.values(), 0)
    for draft in drafts:
        totals[conversations[draft.call.name]] += draft.trained(owned[draft.call.name])
    for draft in drafts:
        name = draft.call.name
        conversation = conversations[name]
        yield write_row(
            draft,
            owned[name],
            options.missing_row,
            total=totals[conversation],
            place=RowPlace(tree=trees[name], follows=_follows(forest, draft), agent=agent_of[name]),
            reward=rewards[name],
            to_go=to_go,
        )


def _follows(forest: Forest, draft: RowDraft) -> str | None:
    """Return the call that a row's first prompt restates in fewer words."""
    first = forest[draft.path[0].name]
    return first.of if first.kind is EdgeKind.COMPACTS else None


def _rewards(
    forest: Forest,
    conversations: Mapping[str, str],
    options: SampleOptions,
    to_go: Mapping[str, float | None],
) -> Mapping[str, float | None]:
    """Return for each call the reward of a row that ends with it."""
    if options.rewards is Rewards.PER_LEAF:
        return {call.name: call.reward for call in forest.calls}
    if options.rewards is Rewards.SUM:
        # Those to go of a conversation's first call are all of its rewards.
        whole: dict[str, float | None] = {}
        for call in forest.calls:
            whole.setdefault(conversations[call.name], to_go[call.name])
        return {name: whole[conversation] for name, conversation in conversations.items()}
    only = _only_rewards(forest, conversations)
    if options.discount is not None:
        return _discounted(forest, conversations, only, options.discount)
    return {call.name: only.get(conversations[call.name]) for call in forest.calls}


def _rewards_to_go(forest: Forest, conversations: Mapping[str, str]) -> Mapping[str, float | None]:
    """Return for each call the sum of its conversation's rewards from its order on."""
    sums = {conversations[call.name]: 0.0 for call in forest.calls if call.reward is not None}
    found: dict[str, float | None] = {}
    for _, group in groupby(reversed(forest.calls), attrgetter("order")):
        calls = list(group)
        for call in calls:
            if call.reward is not None:
                sums[conversations[call.name]] += call.reward
        found |= {call.name: sums.get(conversations[call.name]) for call in calls}
    return found


def _discounted(
    forest: Forest, conversations: Mapping[str, str], only: Mapping[str, float], discount: float
) -> Mapping[str, float | None]:
    """Return for each call its conversation's reward, discounted once per turn that was sampled later."""
    rewards: dict[str, float | None] = {}
    later: dict[str, list[StoredCall]] = {}
    for call in reversed(forest.calls):
        conversation = conversations[call.name]
        turns = later.setdefault(conversation, [])
        reward = only.get(conversation)
        rewards[call.name] = None if reward is None else reward * discount ** len(turns)
        if reward is not None and turns and turns[-1].order == call.order:
            names = f"{call.name!r} and {turns[-1].name!r}"
            raise InputError(
                f"calls {names} of one conversation have the order {call.order}, "
                "and a reward is discounted per later turn: give each call its own order"
            )
        if call.start < call.stop:
            turns.append(call)
    return rewards


def _only_rewards(forest: Forest, conversations: Mapping[str, str]) -> dict[str, float]:
    """Return the one reward of each conversation that has any."""
    first: dict[str, tuple[str, float]] = {}
    for call in forest.calls:
        if call.reward is None:
            continue
        name, reward = first.setdefault(conversations[call.name], (call.name, call.reward))
        if reward != call.reward:
            raise InputError(
                f"calls {name!r} and {call.name!r} of one conversation have the rewards {reward} and "
                f"{call.reward}: give one, or set rewards to per_leaf or sum, or conversation to tree"
            )
    return {conversation: reward for conversation, (_, reward) in first.items()}


def _untrained(
    forest: Forest,
    options: SampleOptions,
    reasons: Mapping[str, LeaveOutReason],
    drafts: Sequence[RowDraft],
    owners: Mapping[str, RowDraft],
) -> Iterator[Untrained]:
    """Yield the sampled ids that train in no row."""
    in_rows = {call.name for call in chain.from_iterable(_trainable(draft, options) for draft in drafts)}
    for call in forest.calls:
        start = owners[call.name].kept_ids(call) if call.name in owners else 0
        size = call.stop - call.start
        if start < size:
            masked = options.rule(call.ending) is TurnRule.MASK
            in_row = LeaveOutReason.MASKED if masked else LeaveOutReason.TOO_LONG
            stays = in_row if call.name in in_rows else LeaveOutReason.NOT_ASKED_FOR
            why = reasons.get(call.name, stays)
            yield Untrained(call=call.name, start=start, stop=size, why=why)
