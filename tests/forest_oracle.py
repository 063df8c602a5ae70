"""The slow oracle of forests and rows: it compares every call with every call, and looks at every id.

Of the files under test it uses only the values. Messages are compared with the rules that
`tests/oracle.py` writes down a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import attrs

from tests.oracle import same_message
from tito_core import Origin
from tito_core.samples.call import StoredCall
from tito_core.samples.experts import MissingRow
from tito_core.samples.options import (
    ConversationScope,
    Cut,
    Owner,
    Retries,
    Rewards,
    RowPer,
    SampleOptions,
    TurnRule,
)

Named = dict[str, StoredCall]


def ids(call: StoredCall) -> list[int]:
    return [*call.step.prompt_ids, *call.step.completion_ids]


def prompt_ids(call: StoredCall) -> list[int]:
    return list(call.step.prompt_ids)


def completion_ids(call: StoredCall) -> list[int]:
    return list(call.step.completion_ids)


def by_key(calls: Sequence[StoredCall]) -> list[StoredCall]:
    return sorted(calls, key=lambda call: (call.order, call.name))


def before(ours: StoredCall, theirs: StoredCall) -> bool:
    return (ours.order, ours.name) < (theirs.order, theirs.name)


# --- parents -------------------------------------------------------------------------------------------


def begins(other: StoredCall, call: StoredCall) -> bool:
    """Tell whether a whole call begins another's prompt."""
    return (
        other is not call
        and bool(completion_ids(other))
        and prompt_ids(call)[: len(ids(other))] == ids(other)
    )


def taken(candidates: Sequence[StoredCall], call: StoredCall) -> StoredCall | None:
    """Take the latest before the call, or the first after it."""
    earlier = [other for other in by_key(candidates) if before(other, call)]
    later = [other for other in by_key(candidates) if not before(other, call)]
    return earlier[-1] if earlier else later[0] if later else None


def equals(candidates: Sequence[StoredCall]) -> tuple[str, ...]:
    return tuple(other.name for other in by_key(candidates)) if len(candidates) > 1 else ()


def parents(call: StoredCall, calls: Sequence[StoredCall]) -> list[StoredCall]:
    """Return the longest calls that begin this one's prompt."""
    fitting = [other for other in calls if begins(other, call)]
    longest = max((len(ids(other)) for other in fitting), default=0)
    return [other for other in fitting if len(ids(other)) == longest]


def ends_with_answer(call: StoredCall) -> bool:
    return bool(call.step.completion) and call.step.completion[-1]["role"] == "assistant"


def history_begins(other: StoredCall, call: StoredCall) -> bool:
    """Tell whether the messages of a whole call begin another's prompt."""
    ours, prompt = list(other.step.messages), list(call.step.prompt)
    return (
        other is not call
        and ends_with_answer(other)
        and len(ours) <= len(prompt)
        and all(map(same_message, ours, prompt))
    )


def history_candidates(call: StoredCall, calls: Sequence[StoredCall]) -> list[StoredCall]:
    fitting = [other for other in calls if history_begins(other, call)]
    longest = max((len(list(other.step.messages)) for other in fitting), default=0)
    return [other for other in fitting if len(list(other.step.messages)) == longest]


def restates(call: StoredCall, other: StoredCall) -> bool:
    """Tell whether a prompt has another call's last question and answer, or quotes the answer."""
    prompt, question = list(call.step.prompt), list(other.step.prompt)[-1:]
    answer = list(other.step.completion)[-1]
    turn = [*question, *other.step.completion]
    pairs = [prompt[i : i + 2] for i in range(len(prompt) - 1)]
    if len(turn) == 2 and any(all(map(same_message, turn, pair)) for pair in pairs):
        return True
    text_of_answer = str(answer["content"]).strip()
    lines = text_of_answer.split("\n")
    return any(
        message["role"] != "assistant"
        and text_of_answer in text
        and any(len(line) >= 16 and line in text.split("\n") for line in (lines[0], lines[-1]))
        for message in prompt
        for text in [str(message["content"])]
    )


def systems(messages: Sequence[Any]) -> list[Any]:
    found = []
    for message in messages:
        if message["role"] != "system":
            break
        found.append(message)
    return found


def compacted(call: StoredCall, calls: Sequence[StoredCall]) -> StoredCall | None:
    fitting = [
        other
        for other in by_key(calls)
        if before(other, call)
        and ends_with_answer(other)
        and len(list(call.step.prompt)) < len(list(other.step.messages))
        and systems(list(call.step.prompt)) == systems(list(other.step.messages))
        and restates(call, other)
    ]
    return fitting[-1] if fitting else None


def kind(call: StoredCall, calls: Sequence[StoredCall]) -> tuple[str, str | None, tuple[str, ...]]:
    """Return how a call came about, from which call, and which calls are equal to that one."""
    same = [other for other in by_key(calls) if prompt_ids(other) == prompt_ids(call)]
    above = parents(call, calls)
    parent = taken(above, call)
    histories = history_candidates(call, calls)
    known = 0 if parent is None else len(list(parent.step.messages))
    rewritten = taken(histories, call)
    if prompt_ids(call) and same[0] is not call:
        return "RETRIES", same[0].name, equals(above)
    if rewritten is not None and len(list(rewritten.step.messages)) > known:
        return "REWRITES", rewritten.name, equals(histories)
    if parent is not None:
        return "CONTINUES", parent.name, equals(above)
    whole = compacted(call, calls)
    return ("UNRELATED", None, ()) if whole is None else ("COMPACTS", whole.name, ())


def path(call: StoredCall, calls: Sequence[StoredCall]) -> list[StoredCall]:
    found = [call]
    while (parent := taken(parents(found[0], calls), found[0])) is not None:
        found.insert(0, parent)
    return found


def tree(call: StoredCall, calls: Sequence[StoredCall]) -> set[str]:
    """Return all calls that are connected with a call."""
    links = {frozenset((c.name, other)) for c in calls for other in related(c, calls) if other is not None}
    found = {call.name}
    for _ in calls:
        found |= {name for link in links if link & found for name in link}
    return found


def related(call: StoredCall, calls: Sequence[StoredCall]) -> list[str | None]:
    parent = taken(parents(call, calls), call)
    return [None if parent is None else parent.name, kind(call, calls)[1]]


# --- what stays -----------------------------------------------------------------------------------------


def rule(call: StoredCall, options: SampleOptions) -> TurnRule:
    if not completion_ids(call):
        return options.empty
    if call.finish_reason == "abort":
        return options.aborted
    return options.truncated if call.step.truncated else TurnRule.KEEP


def stays(call: StoredCall, calls: Sequence[StoredCall], options: SampleOptions) -> bool:
    """Tell whether neither a call nor one above it is left out."""
    if not survives(call, calls, options):
        return False
    if options.retries is Retries.ALL or not completion_ids(call) or not prompt_ids(call):
        return True
    others = [
        other
        for other in by_key(calls)
        if prompt_ids(other) == prompt_ids(call) and completion_ids(other) and survives(other, calls, options)
    ]
    if options.retries is Retries.EXTENDED:
        extended = [o for o in others if any(taken(parents(c, calls), c) is o for c in calls)]
        return call in extended if extended else call is others[-1]
    return call is others[-1]


def survives(call: StoredCall, calls: Sequence[StoredCall], options: SampleOptions) -> bool:
    """Tell whether a call is left out neither for its ending nor with its parent."""
    parent = taken(parents(call, calls), call)
    above = parent is None or (stays(parent, calls, options) and rule(parent, options) is not TurnRule.END)
    return above and rule(call, options) is not TurnRule.DROP


# --- rows -----------------------------------------------------------------------------------------------


@attrs.define
class Row:
    """A row, id by id."""

    name: str
    path: list[StoredCall]
    ids: list[int]
    whole: int
    mask: list[int] = attrs.field(factory=list)
    logprobs: list[float | None] = attrs.field(factory=list)
    authors: list[tuple[Origin, str | None, str | None]] = attrs.field(factory=list)
    """Origin, call, weights of each id."""
    experts: list[bytes | None] = attrs.field(factory=list)
    """What an engine sent for each id."""
    reward: float | None = None
    weight: float = 0.0


def length(call: StoredCall, calls: Sequence[StoredCall], options: SampleOptions) -> int:
    whole = len(ids(call))
    if options.max_length is None or whole <= options.max_length:
        return whole
    if options.cut is Cut.INSIDE:
        return options.max_length
    ends = [len(ids(one)) for one in path(call, calls) if completion_ids(one)]
    return max([end for end in ends if end <= options.max_length], default=0)


def drafts(calls: Sequence[StoredCall], options: SampleOptions, only: Collection[str] | None) -> list[Row]:
    """Return the rows before anything is trained."""
    staying = [call for call in by_key(calls) if stays(call, calls, options)]
    continued = {one.name for call in staying for one in path(call, calls)[:-1]}
    ending = [call for call in staying if options.rows is RowPer.CALL or call.name not in continued]
    return [
        Row(call.name, path(call, calls), ids(call)[: length(call, calls, options)], len(ids(call)))
        for call in ending
        if only is None or call.name in only
    ]


def author(row: Row, place: int) -> tuple[StoredCall, StoredCall | None]:
    """Return the call that an id came with, and the call that sampled it."""
    for call in row.path:
        if place < len(prompt_ids(call)):
            return call, None
        if place < len(ids(call)):
            return call, call
    raise AssertionError(place)


def owner(call: StoredCall, rows: Sequence[Row], options: SampleOptions) -> Row | None:
    """Return the row that trains a call, if some id of it is in any."""
    if rule(call, options) is TurnRule.MASK or not completion_ids(call):
        return None
    holding = [
        row
        for row in rows
        if call in (row.path if options.rows is RowPer.LEAF else row.path[-1:])
        and len(prompt_ids(call)) < len(row.ids)
    ]
    if options.owner is Owner.LONGEST:
        longest = max((row.whole for row in holding), default=0)
        holding = [row for row in holding if row.whole == longest]
    return None if not holding else holding[-1] if options.owner is Owner.LAST else holding[0]


def weights(call: StoredCall, place: int) -> str | None:
    return next((run.version for run in call.weight_versions if run.start <= place < run.stop), None)


def routed(row: Row, place: int) -> bytes | None:
    """Return the first row that calls on the way sent for a position, of those that are a route.

    The rows have two numbers, so that zeros are no choice. One like the row before it is the last choice.
    """
    found = []
    for call in row.path:
        passed = len(ids(call)) - bool(completion_ids(call))
        sent = call.routed_experts
        if sent is None or not sent.start <= place < min(sent.start + sent.shape[0], passed):
            continue
        ours = sent.data[2 * (place - sent.start) :][:2]
        before = sent.data[2 * (place - sent.start - 1) :][:2] if place > sent.start else None
        if any(ours):
            found.append((ours == before, ours))
    return min(found, key=lambda one: one[0])[1] if found else None


def write(row: Row, owners: dict[str, Row | None]) -> None:
    """Fill in a row id by id."""
    for place in range(len(row.ids)):
        call, sampler = author(row, place)
        inside = place - len(prompt_ids(call))
        row.mask.append(int(sampler is not None and owners[call.name] is row))
        known = sampler is not None and call.step.logprobs is not None
        row.logprobs.append(call.step.logprobs[inside] if known and call.step.logprobs else None)
        if sampler is None:
            origin = list(call.step.prompt_ledger)[place]
            row.authors.append((origin, None if origin is Origin.SAMPLED else call.name, None))
        else:
            row.authors.append((Origin.SAMPLED, call.name, weights(call, inside)))
        row.experts.append(routed(row, place))


def samples(
    calls: Sequence[StoredCall], options: SampleOptions, only: Collection[str] | None = None
) -> list[Row]:
    """Return the rows that train something, by the key of their calls."""
    rows = drafts(calls, options, only)
    owners = {call.name: owner(call, rows, options) for call in calls}
    for row in rows:
        write(row, owners)
    rows = [row for row in rows if any(row.mask)]
    for row in rows:
        unit = {call.name for call in calls}
        if options.conversation is ConversationScope.TREE:
            unit = tree(row.path[-1], calls)
        row.weight = sum(row.mask) / sum(sum(other.mask) for other in rows if other.name in unit)
        rewards = [call.reward for call in calls if call.name in unit and call.reward is not None]
        broadcast = rewards[0] if rewards else None
        row.reward = broadcast if options.rewards is Rewards.BROADCAST else row.path[-1].reward
    return rows


def table(row: Row, missing: MissingRow) -> tuple[list[bytes], list[bool]] | None:
    """Return the rows of routed experts that a training row must have, and which of them an engine sent."""
    kinds = [call.routed_experts for call in row.path if call.routed_experts is not None]
    if not kinds:
        return None
    sent = list(row.experts)
    while missing is MissingRow.SHORTER and sent and sent[-1] is None:
        sent.pop()
    filling = bytes(2)
    found = []
    for one in sent:
        found.append(filling if one is None else one)
        filling = found[-1] if missing is MissingRow.REPEAT else filling
    return found, [one is not None for one in sent]
