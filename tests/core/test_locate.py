"""The place where a prompt goes on: what stands there, what stood before it, and why there may be none."""

from __future__ import annotations

from collections import UserList, deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.core import example
from tests.core.example import CALL, CALLING, RESULT
from tito_core import (
    InputError,
    Located,
    Message,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    Trajectory,
    Truncated,
    answer,
    continue_questions,
    locate,
)
from tito_core.locate import answered, turn_after
from tito_core.seams.experiments import experiments

SYSTEM = {"role": "system", "content": "Be kind."}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


def located(step: Step, *new: Message, shared: bool = False) -> Located:
    """Return the place after a step; a shared prompt holds the very messages of the step."""
    found = locate([step], step.messages.then(new) if shared else [*step.messages, *new])
    assert isinstance(found, Located)
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_a_place_knows_what_stands_around_it(shared: bool) -> None:
    step = example.step([SYSTEM, example.user("a"), CALLING, RESULT], "b")
    place = located(step, example.user("c"), shared=shared)
    assert (place.turn.message, place.environment) == (example.assistant("b"), (example.user("c"),))
    assert place.turn.past == tuple(step.prompt)
    assert place.turn.history == (SYSTEM, example.user("a"))


def test_a_prompt_that_shares_the_messages_of_a_step_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_equal", "same_copies"):
        monkeypatch.setattr(f"tito_core.match.{name}", lambda *_: pytest.fail("compared"))
    step = example.step([SYSTEM, example.user("a")], "b")
    assert located(step, example.user("c"), shared=True).match.step is step


def test_a_longer_step_that_ends_with_no_turn_does_not_hide_a_shorter_one() -> None:
    step = example.step([SYSTEM, example.user("a")], "b")
    longer = Step(
        prompt=step.messages, completion=[example.user("c")], prompt_ids=step.ids, completion_ids=[1]
    )
    prompt = [*longer.messages, example.assistant("d"), example.user("e")]
    for steps in ([step, longer], [longer, step]):
        found = locate(steps, prompt)
        assert isinstance(found, Located)
        assert found.match.step is step


def test_a_prompt_without_an_answer_continues_no_messages() -> None:
    assert answered([]) == answered([SYSTEM, example.user("a")]) == 0
    assert answered([SYSTEM, example.user("a"), CALLING, RESULT]) == 3


@pytest.mark.parametrize("shared", [False, True])
def test_editing_a_located_message_changes_no_step(shared: bool) -> None:
    step = example.step([SYSTEM, example.user("a")], "b")
    place = located(step, example.user("c"), shared=shared)
    place.turn.history[0]["content"] = place.turn.history[1]["content"] = "written"
    place.environment[0]["content"] = "written"
    found = answer(continue_questions(place, (example.CLOSE,)), example.tokenize)
    assert isinstance(found, Stitched)
    after = found.then(completion=[example.assistant()], completion_ids=[905, example.CLOSE])
    assert list(after.prompt) == [SYSTEM, example.user("a"), example.assistant("b"), example.user("c")]
    assert list(step.prompt) == [SYSTEM, example.user("a")]


def test_a_located_prompt_is_not_changed_by_later_edits() -> None:
    step = example.step([SYSTEM, example.user("a")], "b")
    retold = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    for user in (example.user("a"), retold):
        prompt: list[dict[str, Any]] = [dict(SYSTEM), user, example.assistant("b"), example.user("c")]
        place = locate([step], prompt)
        assert isinstance(place, Located)
        for message in prompt:
            message["content"] = "written"
        prompt.append(example.user("more"))
        assert place.turn.past == (SYSTEM, example.user("a"))
        assert place.turn.history == (SYSTEM, example.user("a"))
        assert place.environment == (example.user("c"),)


@pytest.mark.parametrize("shared", [False, True])
def test_without_a_user_message_the_history_is_the_opening(shared: bool) -> None:
    assert located(example.step([SYSTEM]), example.user("c"), shared=shared).turn.history == (SYSTEM,)
    assert located(example.step([]), example.user("c"), shared=shared).turn.history == ()


@pytest.mark.parametrize(
    ("before", "role"),
    [([], "user"), ([RESULT], "tool"), ([SYSTEM], "system"), ([SYSTEM, example.user()], "user")],
)
def test_a_turn_at_the_start_is_treated_as_after_a_user_message(before: list[Any], role: str) -> None:
    for new in (example.user("more"), SYSTEM, RESULT):
        assert located(example.step(before), new).turn.after == role


@pytest.mark.parametrize(
    ("step", "new", "refusal"),
    [
        (example.step(), IMAGE, Refusal(Reason.MULTIMODAL, "the conversation has media")),
        (
            example.step([IMAGE], prompt_ids=[1]),
            example.user("more"),
            Refusal(Reason.MULTIMODAL, "the conversation has media"),
        ),
        (
            example.step(truncated=True),
            example.user("more"),
            Refusal(Reason.TRUNCATED, "the policy refuses turns that were cut short"),
        ),
        (
            Step(prompt=[], completion=[example.user()], prompt_ids=[1], completion_ids=[2]),
            example.user("more"),
            Refusal(Reason.NOT_ASSISTANT, "the matched step ends with a user message"),
        ),
        (
            Step(
                prompt=[SYSTEM, example.user()],
                completion=[example.assistant()],
                prompt_ids=[],
                completion_ids=[2],
            ),
            example.user("more"),
            Refusal(Reason.NO_IDS, "the matched step has 2 prompt messages and no ids"),
        ),
    ],
)
def test_a_step_that_cannot_be_continued_is_a_refusal_with_a_reason(
    step: Step, new: Message, refusal: Refusal
) -> None:
    assert locate([step], [*step.messages, new], policy=Policy(truncated=Truncated.REFUSE)) == refusal


def test_a_step_without_prompt_messages_needs_no_prompt_ids() -> None:
    """Nothing is lost of a prompt that is empty."""
    step = Step(prompt=[], completion=[example.assistant()], prompt_ids=[], completion_ids=[900, 2])
    found = located(step, example.user("more"))
    assert (found.turn.after, found.turn.history) == ("user", ())


@pytest.mark.parametrize("role", ["function", "ipython", "tool"])
def test_the_role_before_the_turn_is_that_of_the_message_before_it(role: str) -> None:
    answer = {"role": role, "name": "f", "content": "7"}
    step = example.step([SYSTEM, example.user("a"), CALLING, answer], prompt_ids=[1])
    found = located(step, example.user("c"))
    turn = found.turn
    assert (turn.after, turn.history, turn.history_known) == (role, (SYSTEM, example.user("a")), True)
    assert [context[-1]["role"] for context in turn.likely] == [role, role]
    histories = [one for row in experiments(turn, found.environment) for one in row.histories if one]
    assert {context[-1]["role"] for context in histories} == {role}


@pytest.mark.parametrize(
    ("before", "reused"),
    [
        ([example.user()], False),
        ([example.user(), CALLING, RESULT, example.user()], True),
        ([example.user(), {**CALLING, "tool_calls": [{**CALL, "id": "d"}]}, RESULT, example.user()], False),
        ([example.user(), {**CALLING, "tool_calls": [{**CALL, "id": "d"}, CALL]}, example.user()], True),
        ([example.user(), {**CALLING, "tool_calls": [{**CALL, "id": None}, "c"]}, example.user()], False),
        ([example.user(), RESULT], False),  # a result is no call
    ],
)
@pytest.mark.parametrize("kind", [list, Trajectory])
def test_a_turn_knows_whether_an_id_of_its_calls_was_called_before(
    kind: Any, before: list[Message], reused: bool
) -> None:
    """A template may take the name of a result from the first call with its id."""
    step = Step(prompt=before, completion=[CALLING], prompt_ids=[1], completion_ids=[900, 2])
    found = locate(kind([step]), [*step.messages, RESULT])
    assert isinstance(found, Located)
    ids = ("c",) if reused else ()
    assert found.turn.reused == turn_after(step.prompt, CALLING).reused == ids
    plain = locate(
        kind([example.step(before, prompt_ids=[1])]), [*before, example.assistant(), CALLING, RESULT]
    )
    assert isinstance(plain, Located)
    assert plain.turn.reused == ids  # a new message may call, too


def test_an_invalid_prompt_or_trajectory_is_named_by_its_type() -> None:
    wrong: Any = {"role": "user"}
    with pytest.raises(InputError, match=r"^prompt must be a list of messages, not dict$"):
        locate([], wrong)
    with pytest.raises(InputError, match=r"^trajectory must be a sequence of steps, not dict$"):
        locate(wrong, [example.user()])


def test_a_trajectory_of_anything_else_is_named_by_its_place() -> None:
    wrong: Any = [example.step(), "step"]
    with pytest.raises(InputError, match=r"^trajectory\[1\] is a str: give a Step$"):
        locate(wrong, [example.user()])


def test_a_trajectory_may_hold_steps_of_a_subclass() -> None:
    class Kept(Step):
        pass

    step = example.step()
    kept = Kept(
        prompt=step.prompt,
        completion=step.completion,
        prompt_ids=step.prompt_ids,
        completion_ids=step.completion_ids,
    )
    found = locate([kept], example.prompt(step))
    assert isinstance(found, Located)
    assert found.match.step is kept


def test_a_prompt_that_a_step_ends_with_has_nothing_new() -> None:
    step = example.step()
    assert locate([step], list(step.messages)) == Refusal(
        Reason.NOTHING_NEW, "a step ends with all 2 messages"
    )


class Chat(list[Message]):
    """A conversation that is equal to any other of its title."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # as a list has none


@pytest.mark.parametrize("kind", [list, tuple, deque, UserList, Chat])
def test_a_prompt_is_any_sequence_of_messages(kind: Callable[[list[Message]], Sequence[Message]]) -> None:
    step = example.step([example.user("a"), example.assistant("b"), example.user("c")])
    found = locate([step], kind([*step.messages, example.user("more")]))
    assert isinstance(found, Located)
    assert found.environment == (example.user("more"),)
    edited: list[Message] = [example.user("other"), *step.messages[1:], example.user("more")]
    assert isinstance(locate([step], kind(edited)), Refusal)


@pytest.mark.parametrize("developer", [False, True])
def test_a_late_system_text_is_refused_where_a_developers_message_would_move_it(developer: bool) -> None:
    """With a developer, vLLM makes one system text of all that systems and developers say."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        texts = [one for one in messages if one["role"] in {"system", "developer"}]
        moved = any(one["role"] == "developer" for one in messages)
        first = [{"role": "system", "content": "".join(one["content"] for one in texts)}] if moved else []
        rest = [one for one in messages if one not in texts] if moved else messages
        return example.tokenize([*first, *rest], add_generation_prompt=add_generation_prompt)

    history = [example.user("a"), example.assistant("b")]
    history += [{"role": "developer", "content": "Be kind."}] * developer
    step = Step(
        prompt=[*history, example.user("c")],
        completion=[example.assistant("d")],
        prompt_ids=[1],
        completion_ids=[900, example.CLOSE],
    )
    found = answer(
        continue_questions(located(step, {"role": "system", "content": "Be brief."}), (example.CLOSE,)),
        tokenize,
    )
    assert isinstance(found, Refusal) is developer
