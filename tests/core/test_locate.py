"""The place where a prompt goes on: what stands there, what stood before it, and why there may be none."""

from __future__ import annotations

from collections import UserList, deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.core import talk
from tito_core import (
    InputError,
    Located,
    Message,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    Truncated,
    answer,
    continue_questions,
    locate,
)

SYSTEM = {"role": "system", "content": "Be kind."}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "7"}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


def located(step: Step, *new: Message, shared: bool = False) -> Located:
    """Return the place after a step; a shared prompt holds the very messages of the step."""
    found = locate([step], step.messages.then(new) if shared else [*step.messages, *new])
    assert isinstance(found, Located)
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_a_place_knows_what_stands_around_it(shared: bool) -> None:
    step = talk.step([SYSTEM, talk.user("a"), CALLING, RESULT], "b")
    place = located(step, talk.user("c"), shared=shared)
    assert (place.turn.message, place.environment) == (talk.said("b"), (talk.user("c"),))
    assert place.turn.past == tuple(step.prompt)
    assert place.turn.history == (SYSTEM, talk.user("a"))


@pytest.mark.parametrize("shared", [False, True])
def test_writing_in_a_place_changes_nothing_that_is_held(shared: bool) -> None:
    step = talk.step([SYSTEM, talk.user("a")], "b")
    place = located(step, talk.user("c"), shared=shared)
    place.turn.history[0]["content"] = place.turn.history[1]["content"] = "written"
    place.environment[0]["content"] = "written"
    found = answer(continue_questions(place, (talk.CLOSE,)), talk.tokenize)
    assert isinstance(found, Stitched)
    after = found.then(completion=[talk.said()], completion_ids=[905, talk.CLOSE])
    assert list(after.prompt) == [SYSTEM, talk.user("a"), talk.said("b"), talk.user("c")]
    assert list(step.prompt) == [SYSTEM, talk.user("a")]


def test_a_place_keeps_what_a_prompt_said_when_it_was_found() -> None:
    step = talk.step([SYSTEM, talk.user("a")], "b")
    retold = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    for user in (talk.user("a"), retold):
        prompt: list[dict[str, Any]] = [dict(SYSTEM), user, talk.said("b"), talk.user("c")]
        place = locate([step], prompt)
        assert isinstance(place, Located)
        for message in prompt:
            message["content"] = "written"
        prompt.append(talk.user("more"))
        assert place.turn.past == (SYSTEM, talk.user("a"))
        assert place.turn.history == (SYSTEM, talk.user("a"))
        assert place.environment == (talk.user("c"),)


@pytest.mark.parametrize("shared", [False, True])
def test_where_no_user_spoke_the_history_is_what_opens_it(shared: bool) -> None:
    assert located(talk.step([SYSTEM]), talk.user("c"), shared=shared).turn.history == (SYSTEM,)
    assert located(talk.step([]), talk.user("c"), shared=shared).turn.history == ()


@pytest.mark.parametrize(
    ("before", "role"),
    [([], "user"), ([RESULT], "tool"), ([SYSTEM], "system"), ([SYSTEM, talk.user()], "user")],
)
def test_a_turn_with_nothing_before_it_stands_as_if_a_user_had_asked(before: list[Any], role: str) -> None:
    for new in (talk.user("more"), SYSTEM, RESULT):
        assert located(talk.step(before), new).turn.after == role


@pytest.mark.parametrize(
    ("step", "new", "refusal"),
    [
        (talk.step(), IMAGE, Refusal(Reason.MULTIMODAL, "the conversation has media")),
        (
            talk.step([IMAGE], prompt_ids=[1]),
            talk.user("more"),
            Refusal(Reason.MULTIMODAL, "the conversation has media"),
        ),
        (
            talk.step(truncated=True),
            talk.user("more"),
            Refusal(Reason.TRUNCATED, "the policy refuses turns that were cut short"),
        ),
        (
            Step(prompt=[], completion=[talk.user()], prompt_ids=[1], completion_ids=[2]),
            talk.user("more"),
            Refusal(Reason.NOT_ASSISTANT, "the matched step ends with a user message"),
        ),
    ],
)
def test_a_step_that_cannot_go_on_says_why(step: Step, new: Message, refusal: Refusal) -> None:
    assert locate([step], [*step.messages, new], policy=Policy(truncated=Truncated.REFUSE)) == refusal


def test_what_is_no_prompt_or_no_trajectory_is_named_by_its_kind() -> None:
    wrong: Any = {"role": "user"}
    with pytest.raises(InputError, match=r"^prompt must be a list of messages, not dict$"):
        locate([], wrong)
    with pytest.raises(InputError, match=r"^trajectory must be a sequence of steps, not dict$"):
        locate(wrong, [talk.user()])


class Chat(list[Message]):
    """A conversation that is equal to any other of its title."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # as a list has none


@pytest.mark.parametrize("kind", [list, tuple, deque, UserList, Chat])
def test_a_prompt_is_any_sequence_of_messages(kind: Callable[[list[Message]], Sequence[Message]]) -> None:
    step = talk.step([talk.user("a"), talk.said("b"), talk.user("c")])
    found = locate([step], kind([*step.messages, talk.user("more")]))
    assert isinstance(found, Located)
    assert found.environment == (talk.user("more"),)
    edited: list[Message] = [talk.user("other"), *step.messages[1:], talk.user("more")]
    assert isinstance(locate([step], kind(edited)), Refusal)
