"""Conversations with several causes at once, in one place or in several."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.core.drift.conversations import (
    END,
    OTHER_END,
    TOOLS,
    TOY,
    Conversation,
    Family,
    assistant,
    causes_of,
    closing,
    forgetful,
    letters,
    thinks,
    trimming,
    user,
    whole,
)
from tito_core import Message, render_key


class Together(Family):
    """Counts tools in the first message."""

    def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
        first = {**messages[0], "content": f"{str(key).count('function')}{messages[0]['content']}"}
        return super().write([first, *messages[1:]], None, opener=opener)


def test_thinking_is_dropped_and_what_stays_is_respelled() -> None:
    ids = letters("<think>hm</think>ab" + END)
    audited = Conversation().turn("", thinks(content="ab"), ids=ids).turn("so").audit(Family(forgetful))
    assert causes_of(audited) == [("t0", "REASONING", "THINKING"), ("t0", "CONTENT", "RETOKENIZED")]


def test_thinking_is_dropped_and_white_space_trimmed() -> None:
    def both(message: Message, history: bool) -> str:
        return forgetful(message, history).strip()

    audited = (
        Conversation()
        .turn("<think>hm</think>\n\nyes", thinks(content="\n\nyes"))
        .turn("so")
        .audit(Family(both))
    )
    assert causes_of(audited) == [("t0", "REASONING", "THINKING")]


def test_thinking_is_dropped_and_the_content_rewritten() -> None:
    def both(message: Message, history: bool) -> str:
        return forgetful(message, history).upper() if history else whole(message)

    audited = Conversation().turn("<think>hm</think>yes", thinks()).turn("so").audit(Family(both))
    assert causes_of(audited) == [("t0", "REASONING", "THINKING+REWRITTEN")]


def test_thinking_is_dropped_and_the_content_too() -> None:
    def neither(message: Message, history: bool) -> str:
        return "" if history else whole(message)

    audited = Conversation().turn("<think>hm</think>yes", thinks()).turn("so").audit(Family(neither))
    assert causes_of(audited) == [("t0", "REASONING", "THINKING+REWRITTEN")]


@pytest.mark.parametrize("content", ["", "yes"])
def test_thinking_is_dropped_and_content_lost_by_the_parse(content: str) -> None:
    conversation = Conversation().turn("<think>hm</think>yes no", thinks(content=content)).turn("so")
    assert causes_of(conversation.audit(Family(forgetful))) == [("t0", "REASONING", "THINKING+PARSE")]


def test_white_space_and_other_ids() -> None:
    audited = (
        Conversation().turn("", assistant("ab "), ids=letters("ab " + END)).turn("so").audit(Family(trimming))
    )
    assert causes_of(audited) == [("t0", "CONTENT", "RETOKENIZED"), ("t0", "CONTENT", "WHITESPACE")]


def test_another_stop_after_other_ids() -> None:
    audited = Conversation().turn("", assistant("ab"), ids=letters("ab" + OTHER_END)).turn("so").audit()
    assert causes_of(audited) == [("t0", "CONTENT", "RETOKENIZED"), ("t0", "CLOSE", "SEAM")]


def test_white_space_before_another_stop() -> None:
    audited = Conversation().turn("", assistant("ab"), ids=TOY.encode("ab " + OTHER_END)).turn("so").audit()
    assert causes_of(audited) == [("t0", "CONTENT", "SEAM+WHITESPACE")]


def test_an_edit_and_other_ids_in_one_turn() -> None:
    conversation = Conversation().turn("", assistant("ab, yes"), ids=letters("ab, yes" + END))
    conversation.turn("so", prompt=[user(), assistant("ab, no"), user()])
    assert causes_of(conversation.audit()) == [("t0", "CONTENT", "RETOKENIZED"), ("t0", "CONTENT", "EDITED")]


def test_an_edit_in_one_place_and_other_ids_in_another() -> None:
    conversation = Conversation().turn("", assistant("ab"), ids=letters("ab" + END))
    conversation.turn("so", prompt=[user("other"), assistant("ab"), user()])
    assert causes_of(conversation.audit()) == [("t0", "PROMPT", "EDITED"), ("t0", "CONTENT", "RETOKENIZED")]


def test_other_tools_and_other_ids() -> None:
    conversation = (
        Conversation(TOOLS)
        .turn("", assistant("ab"), ids=letters("ab" + END))
        .turn("so", tools=[*TOOLS, *TOOLS])
    )
    assert causes_of(conversation.audit()) == [("t0", "PROMPT", "TOOLS"), ("t0", "CONTENT", "RETOKENIZED")]


def test_other_tools_and_an_edit_in_one_place() -> None:
    family = Together()
    conversation = Conversation(TOOLS)
    opening = [user("first")]
    sent = family.ids(opening, render_key(TOOLS), add_generation_prompt=True)
    conversation.turn("yes", prompt=opening, prompt_ids=sent)
    conversation.turn("so", prompt=[user("other"), assistant("yes"), user()], tools=[])
    assert causes_of(conversation.audit(family)) == [("t0", "PROMPT", "TOOLS+EDITED")]


def test_a_cut_turn_with_other_ids() -> None:
    conversation = (
        Conversation().turn("", assistant("<think>ab"), ids=letters("<think>ab"), truncated=True).turn("so")
    )
    assert causes_of(conversation.audit(Family(closing))) == [
        ("t0", "CONTENT", "RETOKENIZED"),
        ("t0", "CLOSE", "TRUNCATED"),
    ]


def test_every_turn_has_its_own_break_and_is_reported_once() -> None:
    conversation = Conversation()
    for _ in range(5):
        conversation.turn("", assistant("ab"), ids=letters("ab" + END))
    assert causes_of(conversation.audit()) == [(f"t{i}", "CONTENT", "RETOKENIZED") for i in range(4)]
    assert [one.call for one in conversation.audit().breaks] == ["t1", "t2", "t3", "t4"]


def test_two_turns_that_one_prompt_shows_have_a_break_each() -> None:
    class Late(Family):
        """Writes answers in capitals in a prompt of five messages."""

        def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
            late = [{**one, "content": one["content"].upper()} for one in messages]
            return super().write(late if len(messages) == 5 else messages, key, opener=opener)

    conversation = Conversation()
    for _ in range(3):
        conversation.turn("yes", new=[user("7")])
    assert causes_of(conversation.audit(Late())) == [(f"t{i}", "CONTENT", "REWRITTEN") for i in range(2)]
