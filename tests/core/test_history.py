"""What the real history says must not be guessed at, and what a step holds must not change under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.core import talk
from tito_core import Message, OddStop, Policy, Refusal, Step, Trajectory, answer, stitch, stitch_questions
from tito_core.normalization.compare import same
from tito_core.stitch import Stitched

SUFFIX = (talk.CLOSE,)
QUIET = 50
"""What the templates below write where the history asks them to."""


def _said(messages: Sequence[Message], role: str, words: str) -> bool:
    return any(m["role"] == role and words in str(m.get("content")) for m in messages)


def system_switch(messages: Sequence[Message]) -> bool:
    return _said(messages, "system", "/quiet")


def last_user_switch(messages: Sequence[Message]) -> bool:
    return _said([m for m in messages[:-2] if m["role"] == "user"][-1:], "user", "/quiet")


def no_user(messages: Sequence[Message]) -> bool:
    return not any(m["role"] == "user" for m in messages)


def switched(asked: Callable[[Sequence[Message]], bool]) -> Any:
    """Return a template that writes one id more where it is asked to."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = talk.tokenize(messages, add_generation_prompt=add_generation_prompt)
        return [*ids, QUIET] if add_generation_prompt and asked(messages) else ids

    return tokenize


CASES = [
    (system_switch, [{"role": "system", "content": "Be nice. /quiet"}, talk.user()], talk.user("next")),
    (last_user_switch, [talk.user("hi /quiet")], talk.user("next")),
    (no_user, [{"role": "system", "content": "Go."}], {"role": "system", "content": "On."}),
]


@pytest.mark.parametrize(("asked", "history", "new"), CASES, ids=lambda case: getattr(case, "__name__", ""))
@pytest.mark.parametrize("shared", [False, True])
def test_a_switch_in_the_history_is_never_overlooked(
    asked: Callable[[Sequence[Message]], bool], history: list[Message], new: Message, shared: bool
) -> None:
    tokenize = switched(asked)
    step = Trajectory([talk.step(history)])[-1] if shared else talk.step(history)
    prompt = step.messages.then([new]) if shared else [*step.messages, new]
    found = stitch([step], prompt, SUFFIX, tokenize)
    tail = tokenize(list(prompt), add_generation_prompt=True)
    assert found is None or found[-2:] == tail[-2:]


def test_a_history_that_switches_nothing_is_stitched() -> None:
    step = talk.step([{"role": "system", "content": "Be nice."}, talk.user()])
    assert stitch([step], talk.prompt(step), SUFFIX, switched(system_switch))


def test_editing_what_a_step_hands_out_does_not_edit_the_step() -> None:
    step = talk.step()
    conversation = [*step.messages, talk.user("more")]
    conversation[0]["content"] = "edited"
    step.messages[0]["content"] = "edited"
    step.messages[:1][0]["content"] = "edited"
    assert step.prompt[0]["content"] == "hi"
    assert stitch([step], conversation, SUFFIX, talk.tokenize) is None


def test_editing_the_prompt_after_the_step_was_made_does_not_edit_the_step() -> None:
    conversation = [talk.user("hi")]
    step = talk.step(conversation)
    conversation[0]["content"] = "edited"
    assert stitch([step], [*conversation, talk.said(), talk.user("more")], SUFFIX, talk.tokenize) is None


def test_editing_an_environment_does_not_edit_the_next_step() -> None:
    step = talk.step()
    found = answer(stitch_questions([step], talk.prompt(step), SUFFIX), talk.tokenize)
    assert isinstance(found, Stitched)
    found.environment[0]["content"] = "edited"
    after = found.then(completion=[talk.said("yes")], completion_ids=[905, talk.CLOSE])
    assert after.prompt[-1]["content"] == "more"


def test_a_long_rollout_holds_its_history_once() -> None:
    trajectory = Trajectory([talk.step()])
    for number in range(200):
        prompt = trajectory[-1].messages.then([talk.user(f"question {number}")])
        found = answer(stitch_questions(trajectory, prompt, SUFFIX), talk.tokenize)
        assert isinstance(found, Stitched)
        step = found.then(completion=[talk.said("yes")], completion_ids=[905, 906, talk.CLOSE])
        trajectory = trajectory.append(step)
        assert trajectory[-1] is step
    last = trajectory[-1]
    assert last.messages.extends(trajectory[0].messages)
    assert last.ids.extends(trajectory[0].ids)
    held = sum(len(part) for part in last.ids.parts())
    assert held == len(last.ids)
    assert sum(last.ledger.mask()) == sum(len(step.completion_ids) for step in trajectory)


def test_numbers_of_any_size_are_compared() -> None:
    def calling(value: int) -> dict[str, Any]:
        return {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": value}}}]}

    assert same(calling(10**5000), calling(10**5000)) == frozenset()
    assert same(calling(10**5000), calling(10**5000 + 1)) is None


def test_plain_steps_share_in_a_trajectory_what_they_repeat() -> None:
    first = talk.step()
    ids = stitch([first], talk.prompt(first), SUFFIX, talk.tokenize)
    assert ids is not None
    second = Step(
        prompt=talk.prompt(first), completion=[talk.said("b")], prompt_ids=ids, completion_ids=[908, 2]
    )
    held = Trajectory([first, second])
    assert held[1] == second
    assert held[1].ids.extends(held[0].ids)
    assert held[1].messages.extends(held[0].messages)


def _calling(value: object) -> dict[str, Any]:
    function = {"name": "f", "arguments": {"x": value}}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": function}]}


@pytest.mark.parametrize(("ours", "theirs", "fits"), [(True, 1, False), (0, False, False), (1, 1.0, True)])
def test_true_is_not_one_though_python_says_so(ours: object, theirs: object, fits: bool) -> None:
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    step = talk.step([talk.user(), _calling(ours), result])
    prompt = [talk.user(), _calling(theirs), result, talk.said(), talk.user("more")]
    assert (stitch([step], prompt, SUFFIX, talk.tokenize) is not None) == fits


@pytest.mark.parametrize("choice", list(OddStop))
def test_the_ledger_covers_every_id_whatever_becomes_of_the_stop(choice: OddStop) -> None:
    step = talk.step(sampled=[900, 77])
    found = answer(
        stitch_questions([step], talk.prompt(step), SUFFIX, policy=Policy(odd_stop=choice)), talk.tokenize
    )
    if choice is OddStop.REFUSE:
        assert isinstance(found, Refusal)
        return
    assert isinstance(found, Stitched)
    assert len(found.ledger) == len(found.ids)
    sampled = [i for i, kept in zip(found.ids, found.ledger.mask(), strict=True) if kept]
    assert sampled == ([900] if choice is OddStop.REPLACE else [900, 77])
    assert found.inserted_close == (talk.CLOSE,)
    stops = (found.replaced_stop, found.kept_stop)
    assert stops == ((77, None) if choice is OddStop.REPLACE else (None, 77))


def test_a_history_in_parts_is_read_as_text() -> None:
    """Templates look for switches in strings; a lone text part is its string, before the turn as after it."""

    def switching(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        asked = [m for m in messages if m["role"] == "user"][-1:]
        quiet = [QUIET] if any("/quiet" in (m.get("content") or "") for m in asked) else []
        return talk.tokenize(messages, add_generation_prompt=add_generation_prompt) + quiet

    call = {"id": "callaaaa1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "callaaaa1", "content": "7"}
    found = []
    for content in ("Add. /quiet", [{"type": "text", "text": "Add. /quiet"}]):
        step = Step(
            prompt=[{"role": "user", "content": content}],
            completion=[turn],
            prompt_ids=[1, 2],
            completion_ids=[900, talk.CLOSE],
        )
        found.append(stitch([step], [*step.messages, result], SUFFIX, switching))
    assert found[0] == found[1]


def test_of_equals_the_one_that_is_restated_exactly_is_used() -> None:
    one, two = (
        Step(
            prompt=[talk.user()],
            completion=[{**talk.said(), "refusal": words}],
            prompt_ids=[1],
            completion_ids=[number, talk.CLOSE],
        )
        for words, number in (("one", 901), ("two", 902))
    )
    for steps in ([one, two], [two, one]):
        for step, number in ((one, 901), (two, 902)):
            ids = stitch(steps, talk.prompt(step), SUFFIX, talk.tokenize)
            assert ids is not None
            assert number in ids
