"""Forests as they come about: branches, retries, compaction, cut and empty turns, equal calls, in any order.

A forest is grown call by call from what is there already, over an alphabet so small that ids and answers
coincide by chance, because that is where calls are attached by luck or counted twice. Every call draws its
own log-probabilities, weights and routed experts, so that a value in the wrong place shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from hypothesis import strategies as st

from tests.strategies import DICE, Dice
from tito_core import Ids, Ledger, Message, Origin, Step
from tito_core.samples.call import Ending, StoredCall, WeightVersion
from tito_core.samples.experts import MissingRow, RoutedExperts
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

CLOSE, OPEN = 2, 1
WORDS = ((5,), (6,), (5, 6), (6, 5, 5), (5, 5), (7,))
ANSWERS = ("yes", "no", "What was done so far:\n- this\n- that", "a summary in one long line")
QUESTIONS = ("go on", "why?", "and then?")
SYSTEM = {"role": "system", "content": "be brief"}


def words(dice: Dice) -> list[int]:
    return list(dice.pick(WORDS))


def user(dice: Dice) -> dict[str, Any]:
    return {"role": dice.pick(("user", "user", "tool")), "content": dice.pick(QUESTIONS)}


@attrs.frozen
class Asked:
    """What is sent: messages, ids, and where the ids come from if the sender knows."""

    messages: Sequence[Message]
    ids: Sequence[int]
    ledger: Ledger | None = None


def root(dice: Dice, _: StoredCall | None) -> Asked:
    opening = [SYSTEM] if dice.once_in(3) else []
    return Asked([*opening, user(dice)], [OPEN, *words(dice), OPEN][: dice.pick((3, 3, 3, 2, 0))])


def bridged(dice: Dice, base: StoredCall) -> Asked:
    """Go on from all the ids of a call, over a close where it sampled none."""
    closed = base.ending is Ending.WHOLE
    runs = [
        (Origin.INSERTED_CLOSE, [] if closed else [CLOSE]),
        (Origin.ENVIRONMENT, words(dice)),
        (Origin.GENERATION_PROMPT, [OPEN]),
    ]
    added = tuple(number for _, part in runs for number in part)
    ledger = base.step.ledger.then(*((origin, len(part)) for origin, part in runs))
    ids: Sequence[int] = base.ids.then(added).packed() if dice.once_in(2) else [*base.ids, *added]
    return Asked([*base.step.messages, user(dice)], ids, ledger if dice.once_in(2) else None)


def injected(dice: Dice, base: StoredCall) -> Asked:
    """Go on over a turn that nobody sampled."""
    asked = bridged(dice, base)
    said = {"role": "assistant", "content": dice.pick(ANSWERS)}
    return attrs.evolve(asked, messages=[*base.step.messages, user(dice), said, *asked.messages[-1:]])


def edited(dice: Dice, base: StoredCall) -> Asked:
    """Go on by ids, under messages that somebody changed."""
    asked = bridged(dice, base)
    place = dice.pick(range(len(asked.messages)))
    other = {**asked.messages[place], "content": "something else"}
    return attrs.evolve(asked, messages=[*asked.messages[:place], other, *asked.messages[place + 1 :]])


def resumed(_: Dice, base: StoredCall) -> Asked:
    """Go on inside the very turn."""
    return Asked(base.step.messages, base.ids)


def retried(_: Dice, base: StoredCall) -> Asked:
    return Asked(base.step.prompt, base.step.prompt_ids, base.step.prompt_ledger)


def rewritten(dice: Dice, base: StoredCall) -> Asked:
    """Go on by messages, over ids that were rendered again."""
    return Asked([*base.step.messages, user(dice)], [OPEN, *words(dice), 9, *words(dice), OPEN])


def replaced(dice: Dice, base: StoredCall) -> Asked:
    """Go on over all the ids but the stop, as a policy may say."""
    return Asked([*base.step.messages, user(dice)], [*base.ids[:-1], CLOSE, *words(dice), OPEN])


def summarized(dice: Dice, base: StoredCall) -> Asked:
    """Begin again with what the model wrote."""
    said = "".join(str(message["content"]) for message in base.step.completion)
    told = {"role": "user", "content": dice.pick(("{}", "So far:\n{}\nGo on.", "So far: {}")).format(said)}
    return Asked([*base.step.prompt.opening, told], [OPEN, 8, *words(dice), OPEN])


def shortened(dice: Dice, base: StoredCall) -> Asked:
    """Begin again with the last turn alone."""
    last = list(base.step.messages)[-2:]
    return Asked([*base.step.prompt.opening, *last, user(dice)], [OPEN, 8, *words(dice), OPEN])


GROWTH: tuple[Callable[[Dice, Any], Asked], ...] = (
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


def sampled(dice: Dice) -> tuple[list[int], bool, str | None]:
    """Return completion ids, whether they were cut short, and the finish reason."""
    ids = [number for _ in range(dice.pick((1, 1, 2, 3))) for number in words(dice)]
    return dice.pick(
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


def logprobs(dice: Dice, number: int, size: int) -> list[float | None] | None:
    told: list[float | None] = [-number - place / 16 for place in range(size)]
    holes = [None if place % 2 else value for place, value in enumerate(told)]
    return dice.pick((told, told, None, holes))


def weights(dice: Dice, size: int) -> tuple[WeightVersion, ...]:
    start, middle = dice.pick((0, 1)), dice.pick((1, 2))
    runs = ((0, size),), ((0, 0),), ((start, middle), (middle, size)), ()
    chosen = dice.pick(runs)
    if any(not a <= b <= size for a, b in chosen):
        return ()
    return tuple(WeightVersion(version=f"v{i}", start=a, stop=b) for i, (a, b) in enumerate(chosen))


def experts(dice: Dice, number: int, start: int, stop: int) -> RoutedExperts | None:
    """Return rows that say which call sent them; engines leave out the last, and some begin later."""
    first, last = dice.pick((0, 0, start, max(start - 1, 0))), dice.pick((stop - 1, stop - 1, stop))
    if last < first or dice.once_in(4):
        return None
    data = b"".join(bytes((number + 1, place % 256)) for place in range(first, last))
    return RoutedExperts(data=data, dtype="uint8", shape=(last - first, 1, 2), start=first)


def grown(number: int, order: int, calls: Sequence[StoredCall], dice: Dice, other: Dice) -> StoredCall:
    """Return one more call."""
    base = dice.pick(calls) if calls else None
    asked = root(dice, None) if base is None else dice.pick(GROWTH)(dice, base)
    ids, truncated, reason = sampled(dice)
    if base is not None and other.once_in(6):  # what was sampled before, exactly
        ids, truncated, reason = [*base.step.completion_ids], base.step.truncated, base.finish_reason
    said = [{"role": "assistant", "content": other.pick(ANSWERS)}]
    prompt_ids = Ids.of(asked.ids)
    step = Step(
        prompt=asked.messages,
        completion=said if ids or other.once_in(2) else [],
        prompt_ids=prompt_ids,
        completion_ids=ids,
        logprobs=logprobs(other, number, len(ids)),
        truncated=truncated,
        prompt_ledger=asked.ledger or Ledger.prompt(len(prompt_ids)),
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
        calls.append(grown(number, orders[number], calls, draw(DICE), draw(DICE)))
    unrecorded = draw(st.integers(0, 3 * count))
    return [call for number, call in enumerate(calls) if number != unrecorded] or calls


@st.composite
def _drawn(draw: Any) -> list[StoredCall]:
    return _calls(draw)


CALLS = _drawn()
"""Calls in the order in which they were made, which is not always the order of their keys."""

OPTIONS = st.builds(
    SampleOptions,
    rows=st.sampled_from((RowPer.LEAF, RowPer.LEAF, RowPer.CALL)),
    owner=st.sampled_from(Owner),
    max_length=st.sampled_from((None, None, 1, 4, 7, 10, 15, 25)),
    cut=st.sampled_from(Cut),
    rewards=st.sampled_from(Rewards),
    conversation=st.sampled_from(ConversationScope),
    truncated=st.sampled_from(TurnRule),
    aborted=st.sampled_from(TurnRule),
    empty=st.sampled_from(TurnRule),
    retries=st.sampled_from(Retries),
    missing_row=st.sampled_from(MissingRow),
)
