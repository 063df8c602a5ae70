"""What is known of a sampled turn, and how the conversation is written in which its end was located."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.core import example
from tests.core.example import CALL, CALLING, RESULT
from tito_core import Message
from tito_core.message import Messages
from tito_core.seams.seam import SHORT, Seam
from tito_core.seams.turn import MOST_BETWEEN, LocatedTurn, SampledTurn
from tito_core.seams.turn_form import WORDS, TurnForm

Plain = dict[str, Any]
TEXT: Plain = {"role": "system", "content": "s"}


def after(prompt: Sequence[Message], **more: Any) -> SampledTurn:
    """Return the turn that these messages come before."""
    return SampledTurn(message=CALLING, prompt=prompt, place=len(prompt), **more)


def roles(history: Sequence[Message]) -> list[str]:
    return [str(message["role"]) for message in history]


@pytest.mark.parametrize(
    ("between", "loop"),
    [
        ([], ()),
        ([TEXT], ("system",)),
        ([example.user(), example.user()], ("user",)),
        ([example.assistant()], ("assistant",)),
        ([example.user(), TEXT, example.assistant()], ("user", "system", "assistant")),
        ([example.assistant(), example.user()], ()),  # an answer, and a new question
        ([CALLING, example.user()], ()),
    ],
)
@pytest.mark.parametrize("kind", [list, Messages.of])
def test_a_loop_may_go_on_after_other_messages_than_results(
    kind: Any, between: list[Message], loop: tuple[str, ...]
) -> None:
    assert after(kind([example.user(), CALLING, RESULT, *between])).loop == loop


def test_a_loop_is_looked_for_in_the_last_messages() -> None:
    texts = [TEXT, example.user()] * MOST_BETWEEN
    near = after([example.user(), CALLING, RESULT, *texts[: MOST_BETWEEN - 2]])
    assert set(near.loop) == {"system", "user"}
    assert after([example.user(), CALLING, RESULT, *texts[:MOST_BETWEEN]]).loop == ()


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ((), ["user"]),
        ((example.user(),), ["user"]),
        ((TEXT, example.user()), ["system", "user"]),
        (({"role": "developer", "content": "d"},), ["system", "user"]),
    ],
)
def test_the_likely_history_is_opened_by_a_system_text_if_the_real_one_is(
    history: tuple[Plain, ...], found: list[str]
) -> None:
    (likely,) = SampledTurn(message=CALLING, history=history).likely
    assert roles(likely) == found


def located(turn: Plain, place: int | None = None) -> LocatedTurn:
    return LocatedTurn(
        context=(example.user("Hello."),),
        form=TurnForm(turn, place),
        environment=(RESULT,),
        seam=Seam((1, 50, 2), 2),
    )


def test_the_conversation_is_the_short_history_the_text_and_the_new_messages() -> None:
    found = located(example.assistant("real"))
    assert found.messages((RESULT,)) == (example.user("Hello."), example.assistant(SHORT), RESULT)
    assert found.messages((), "other") == (example.user("Hello."), example.assistant("other"))


def test_an_unlike_conversation_has_other_words_beside_the_text() -> None:
    history = (example.user("Now."),)
    turn = {**CALLING, "content": "real", "reasoning": "real"}
    past, said, result = located(turn, place=-1).unlike(history)
    near = located(turn, place=-1).messages((RESULT,))[1]
    assert (past, result) == (history[0], RESULT)
    assert said["content"] == said["reasoning"] == WORDS[1]
    assert near["content"] == near["reasoning"] == WORDS[0]
    assert said["tool_calls"] == near["tool_calls"]


def test_another_turn_says_the_text_everywhere() -> None:
    other = {**CALLING, "content": "Look.", "tool_calls": [CALL, {**CALL, "id": "d"}]}
    said, _ = located(CALLING, place=-1).unlike((), other)
    arguments = {call["function"]["arguments"] for call in said["tool_calls"]}
    assert len(arguments) == 1
    assert said["content"] == SHORT


@pytest.mark.parametrize(
    ("said", "contents"),
    [
        ({"content": "Look."}, [WORDS[1]]),
        ({"content": ""}, [""]),
        ({"content": None}, [None, ""]),
        ({}, ["absent", ""]),
    ],
)
def test_a_call_without_a_content_is_written_with_an_empty_one_too(
    said: Plain, contents: list[str | None]
) -> None:
    turn = {"role": "assistant", "tool_calls": [CALL], **said}
    for given, other in ((turn, None), (CALLING, turn)):
        ways = [way[0] for way in located(given, place=-1).ways((), other)]
        found = [way.get("content", "absent") for way in ways]
        assert found == [SHORT if other and one == WORDS[1] else one for one in contents]
        assert all(way["tool_calls"] == ways[0]["tool_calls"] for way in ways)
