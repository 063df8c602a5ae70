"""Random forests: branches, retries, compaction, cut and empty turns, equal calls, in any order.

Each call continues or repeats one of the calls before it. The alphabet is so small that ids and answers
coincide by chance, because that is where a call may get the wrong parent or be counted twice. Every call
has its own log-probabilities, masks, weights and routed experts, so that a value in the wrong place shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...ids import Ids
from ...ledger import Ledger, Origin
from ...message import Message
from ...samples.call import Ending, StoredCall, WeightVersion
from ...samples.experts import MissingRow, RoutedExperts
from ...samples.options import (
    ConversationScope,
    Cut,
    Owner,
    Retries,
    Rewards,
    RowPer,
    SampleOptions,
    TurnRule,
)
from ...sampling_mask import SamplingMask
from ...step import Step
from .choices import CHOICES, Choices

CLOSE, OPEN = 2, 1
WORDS = ((5,), (6,), (5, 6), (6, 5, 5), (5, 5), (7,))
ANSWERS = ("yes", "no", "What was done so far:\n- this\n- that", "a summary in one long line")
QUESTIONS = ("go on", "why?", "and then?")
SYSTEM = {"role": "system", "content": "be brief"}


def words(choices: Choices) -> list[int]:
    """Return some ids."""
    return list(choices.pick(WORDS))


def user(choices: Choices) -> dict[str, Any]:
    """Return a new message."""
    return {"role": choices.pick(("user", "user", "tool")), "content": choices.pick(QUESTIONS)}


@attrs.frozen
class Request:
    """A request: messages, ids, and the origin of the ids if it is known."""

    messages: Sequence[Message]
    ids: Sequence[int]
    ledger: Ledger | None = None


def root(choices: Choices, _: StoredCall | None) -> Request:
    """Begin a conversation."""
    opening = [SYSTEM] if choices.once_in(3) else []
    return Request([*opening, user(choices)], [OPEN, *words(choices), OPEN][: choices.pick((3, 3, 3, 2, 0))])


def bridged(choices: Choices, earlier: StoredCall) -> Request:
    """Continue all ids of a call, over a close if it sampled no stop."""
    closed = earlier.ending is Ending.WHOLE
    runs = [
        (Origin.INSERTED_CLOSE, [] if closed else [CLOSE]),
        (Origin.ENVIRONMENT, words(choices)),
        (Origin.GENERATION_PROMPT, [OPEN]),
    ]
    added = tuple(number for _, part in runs for number in part)
    ledger = earlier.step.ledger.then(*((origin, len(part)) for origin, part in runs))
    ids: Sequence[int] = earlier.ids.then(added).packed() if choices.once_in(2) else [*earlier.ids, *added]
    return Request([*earlier.step.messages, user(choices)], ids, ledger if choices.once_in(2) else None)


def injected(choices: Choices, earlier: StoredCall) -> Request:
    """Continue over a turn that no call sampled."""
    request = bridged(choices, earlier)
    answer = {"role": "assistant", "content": choices.pick(ANSWERS)}
    return attrs.evolve(
        request, messages=[*earlier.step.messages, user(choices), answer, *request.messages[-1:]]
    )


def edited(choices: Choices, earlier: StoredCall) -> Request:
    """Continue by ids, with messages that were edited."""
    request = bridged(choices, earlier)
    place = choices.pick(range(len(request.messages)))
    other = {**request.messages[place], "content": "something else"}
    return attrs.evolve(request, messages=[*request.messages[:place], other, *request.messages[place + 1 :]])


def resumed(_: Choices, earlier: StoredCall) -> Request:
    """Continue inside the turn."""
    return Request(earlier.step.messages, earlier.ids)


def retried(_: Choices, earlier: StoredCall) -> Request:
    """Send a prompt again."""
    return Request(earlier.step.prompt, earlier.step.prompt_ids, earlier.step.prompt_ledger)


def rewritten(choices: Choices, earlier: StoredCall) -> Request:
    """Continue by messages, with ids that were rendered again."""
    return Request([*earlier.step.messages, user(choices)], [OPEN, *words(choices), 9, *words(choices), OPEN])


def replaced(choices: Choices, earlier: StoredCall) -> Request:
    """Continue all ids but the stop, as a policy may choose."""
    return Request([*earlier.step.messages, user(choices)], [*earlier.ids[:-1], CLOSE, *words(choices), OPEN])


def summarized(choices: Choices, earlier: StoredCall) -> Request:
    """Begin again with a summary that the model wrote."""
    summary = "".join(str(message["content"]) for message in earlier.step.completion)
    message = {
        "role": "user",
        "content": choices.pick(("{}", "So far:\n{}\nGo on.", "So far: {}")).format(summary),
    }
    return Request([*earlier.step.prompt.opening, message], [OPEN, 8, *words(choices), OPEN])


def shortened(choices: Choices, earlier: StoredCall) -> Request:
    """Begin again with the last turn alone."""
    last = list(earlier.step.messages)[-2:]
    return Request([*earlier.step.prompt.opening, *last, user(choices)], [OPEN, 8, *words(choices), OPEN])


GROWTH: tuple[Callable[[Choices, Any], Request], ...] = (
    *[bridged] * 8,
    *[retried] * 3,
    rewritten,
    rewritten,
    root,
    root,
    injected,
    edited,
    resumed,
    replaced,
    summarized,
    shortened,
)


def sampled(choices: Choices) -> tuple[list[int], bool, str | None]:
    """Return completion ids, whether they were cut short, and the finish reason."""
    ids = [number for _ in range(choices.pick((1, 1, 2, 3))) for number in words(choices)]
    return choices.pick(
        (
            ([*ids, CLOSE], False, "stop"),
            ([*ids, CLOSE], False, None),
            ([*ids, CLOSE], False, "tool_calls"),
            (ids, True, "length"),
            (ids, True, "abort"),
            (ids, True, None),
            ([], False, None),
            ([], True, "abort"),
        )
    )


def logprobs(choices: Choices, number: int, size: int) -> list[float | None] | None:
    """Return log-probabilities that no other call has, sometimes with holes, sometimes none at all."""
    values: list[float | None] = [-number - place / 16 for place in range(size)]
    holes = [None if place % 2 else value for place, value in enumerate(values)]
    return choices.pick((values, values, None, holes))


def masked(number: int, call: StoredCall) -> StoredCall:
    """Return a call with a sampling mask that no other call has, none at each third id."""
    kept = [
        [one, *range(1000 + number, 1000 + number + place % 3)] if (place + number) % 3 else None
        for place, one in enumerate(call.step.completion_ids)
    ]
    return attrs.evolve(call, step=attrs.evolve(call.step, sampling_mask=SamplingMask.of(kept)))


def weights(choices: Choices, size: int) -> tuple[WeightVersion, ...]:
    """Return which weights sampled which ids."""
    start, middle = choices.pick((0, 1)), choices.pick((1, 2))
    runs = ((0, size),), ((0, 0),), ((start, middle), (middle, size)), ()
    chosen = choices.pick(runs)
    if any(not a <= b <= size for a, b in chosen):
        return ()
    return tuple(WeightVersion(version=f"v{i}", start=a, stop=b) for i, (a, b) in enumerate(chosen))


def experts(choices: Choices, number: int, start: int, stop: int) -> RoutedExperts | None:
    """Return rows that say which call sent them; engines leave out the last, and some begin later.

    Some rows are lost: zeros, or the row before once more.
    """
    first, last = choices.pick((0, 0, start, max(start - 1, 0))), choices.pick((stop - 1, stop - 1, stop))
    if last < first or choices.once_in(4):
        return None
    data = [bytes((number + 1, place % 256)) for place in range(first, last)]
    for place in range(choices.pick((0, 0, 1, 2, 3)), len(data), 4) if choices.once_in(2) else ():
        data[place] = choices.pick((bytes(2), data[place - 1] if place else bytes(2)))
    return RoutedExperts(data=b"".join(data), dtype="uint8", shape=(last - first, 1, 2), start=first)


def grown(
    number: int, order: int, calls: Sequence[StoredCall], choices: Choices, other: Choices
) -> StoredCall:
    """Return one more call."""
    earlier = choices.pick(calls) if calls else None
    request = root(choices, None) if earlier is None else choices.pick(GROWTH)(choices, earlier)
    ids, truncated, reason = sampled(choices)
    if earlier is not None and other.once_in(6):  # what was sampled before, exactly
        ids, truncated, reason = [*earlier.step.completion_ids], earlier.step.truncated, earlier.finish_reason
    completion = [{"role": "assistant", "content": other.pick(ANSWERS)}]
    prompt_ids = Ids.of(request.ids)
    step = Step(
        prompt=request.messages,
        completion=completion if ids or other.once_in(2) else [],
        prompt_ids=prompt_ids,
        completion_ids=ids,
        logprobs=logprobs(other, number, len(ids)),
        truncated=truncated,
        prompt_ledger=request.ledger or Ledger.prompt(len(prompt_ids)),
    )
    return StoredCall(
        name=f"{other.pick('xy')}{number}",
        order=order,
        step=step,
        finish_reason=reason,
        weight_versions=weights(other, len(ids)),
        routed_experts=experts(other, number, len(step.prompt_ids), len(step.ids)),
        reward=other.pick((None, None, 0.5)),
        metadata={"number": number},
    )


def _calls(draw: Any) -> list[StoredCall]:
    count = draw(st.integers(1, 9))
    orders = draw(
        st.sampled_from((range(count), [0] * count, range(count, 0, -1), [3, 1, 4, 1, 5, 9, 2, 6, 5]))
    )
    calls: list[StoredCall] = []
    for number in range(count):
        calls.append(grown(number, orders[number], calls, draw(CHOICES), draw(CHOICES)))
    if draw(st.booleans()):  # a row has masks of all its turns, or of none
        calls = list(starmap(masked, enumerate(calls)))
    unrecorded = draw(st.integers(0, 3 * count))
    return [call for number, call in enumerate(calls) if number != unrecorded] or calls


@st.composite
def _drawn(draw: Any) -> list[StoredCall]:
    return _calls(draw)


CALLS = _drawn()


def stored_calls() -> SearchStrategy[list[StoredCall]]:
    """Draw calls in the order of their creation, which is not always the order of their keys."""
    return CALLS


def sample_options() -> SearchStrategy[SampleOptions]:
    """Draw options for rows of any kind."""
    return OPTIONS


OPTIONS = st.builds(
    SampleOptions,
    rows=st.sampled_from((RowPer.LEAF, RowPer.LEAF, RowPer.CALL)),
    owner=st.sampled_from(Owner),
    max_length=st.sampled_from((None, None, 1, 4, 7, 10, 15, 25)),
    cut=st.sampled_from(Cut),
    rewards=st.sampled_from((Rewards.BROADCAST, Rewards.PER_LEAF)),
    conversation=st.sampled_from(ConversationScope),
    truncated=st.sampled_from(TurnRule),
    aborted=st.sampled_from(TurnRule),
    empty=st.sampled_from(TurnRule),
    retries=st.sampled_from(Retries),
    missing_row=st.sampled_from(MissingRow),
)
