"""What the real history says must not be guessed at, and what a step holds must not change under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.core import example
from tito_core import Message, Step, Trajectory, answer, stitch, stitch_questions
from tito_core.stitch import Stitched

SUFFIX = (example.CLOSE,)
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
    return example.speaking(lambda messages: [QUIET] * asked(messages))


CASES = [
    (system_switch, [{"role": "system", "content": "Be nice. /quiet"}, example.user()], example.user("next")),
    (last_user_switch, [example.user("hi /quiet")], example.user("next")),
    (no_user, [{"role": "system", "content": "Go."}], {"role": "system", "content": "On."}),
]


@pytest.mark.parametrize(("asked", "history", "new"), CASES, ids=lambda case: getattr(case, "__name__", ""))
@pytest.mark.parametrize("shared", [False, True])
def test_a_template_switch_in_the_history_is_always_found(
    asked: Callable[[Sequence[Message]], bool], history: list[Message], new: Message, shared: bool
) -> None:
    tokenize = switched(asked)
    step = Trajectory([example.step(history)])[-1] if shared else example.step(history)
    prompt = step.messages.then([new]) if shared else [*step.messages, new]
    found = stitch([step], prompt, SUFFIX, tokenize)
    tail = tokenize(list(prompt), add_generation_prompt=True)
    assert found is None or found[-2:] == tail[-2:]


def test_editing_what_a_step_hands_out_does_not_edit_the_step() -> None:
    step = example.step()
    conversation = [*step.messages, example.user("more")]
    conversation[0]["content"] = "edited"
    step.messages[0]["content"] = "edited"
    step.messages[:1][0]["content"] = "edited"
    assert step.prompt[0]["content"] == "hi"
    assert stitch([step], conversation, SUFFIX, example.tokenize) is None


def test_a_long_rollout_holds_its_history_once() -> None:
    trajectory = Trajectory([example.step()])
    for number in range(200):
        prompt = trajectory[-1].messages.then([example.user(f"question {number}")])
        found = answer(stitch_questions(trajectory, prompt, SUFFIX), example.tokenize)
        assert isinstance(found, Stitched)
        step = found.then(completion=[example.assistant("yes")], completion_ids=[905, 906, example.CLOSE])
        trajectory = trajectory.append(step)
        assert trajectory[-1] is step
    last = trajectory[-1]
    assert last.messages.extends(trajectory[0].messages)
    assert last.ids.extends(trajectory[0].ids)
    stored = sum(len(part) for part in last.ids.parts())
    assert stored == len(last.ids)
    assert sum(last.ledger.mask()) == sum(len(step.completion_ids) for step in trajectory)


def _calling(value: object) -> dict[str, Any]:
    function = {"name": "f", "arguments": {"x": value}}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": function}]}


@pytest.mark.parametrize(("ours", "theirs", "fits"), [(True, 1, False), (0, False, False), (1, 1.0, True)])
def test_true_and_one_are_different_values(ours: object, theirs: object, fits: bool) -> None:
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    step = example.step([example.user(), _calling(ours), result])
    prompt = [example.user(), _calling(theirs), result, example.assistant(), example.user("more")]
    assert (stitch([step], prompt, SUFFIX, example.tokenize) is not None) == fits


def test_a_history_in_parts_is_read_as_text() -> None:
    """Templates look for switches in strings; a lone text part is its string, before the turn as after it."""

    def switching(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        asked = [m for m in messages if m["role"] == "user"][-1:]
        quiet = [QUIET] if any("/quiet" in (m.get("content") or "") for m in asked) else []
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt) + quiet

    call = {"id": "callaaaa1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "callaaaa1", "content": "7"}
    found = []
    for content in ("Add. /quiet", [{"type": "text", "text": "Add. /quiet"}]):
        step = Step(
            prompt=[{"role": "user", "content": content}],
            completion=[turn],
            prompt_ids=[1, 2],
            completion_ids=[900, example.CLOSE],
        )
        found.append(stitch([step], [*step.messages, result], SUFFIX, switching))
    assert found[0] == found[1]


def test_of_equals_the_one_that_is_restated_exactly_is_used() -> None:
    one, two = (
        Step(
            prompt=[example.user()],
            completion=[{**example.assistant(), "refusal": words}],
            prompt_ids=[1],
            completion_ids=[number, example.CLOSE],
        )
        for words, number in (("one", 901), ("two", 902))
    )
    for steps in ([one, two], [two, one]):
        for step, number in ((one, 901), (two, 902)):
            ids = stitch(steps, example.prompt(step), SUFFIX, example.tokenize)
            assert ids is not None
            assert number in ids
