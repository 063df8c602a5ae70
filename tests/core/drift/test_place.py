"""Differences in prompts: the first prompt, messages between turns, the generation prompt."""

from __future__ import annotations

from collections.abc import Sequence

from tests.core.drift.conversations import (
    TOY,
    Conversation,
    Family,
    assistant,
    causes_of,
    forgetful,
    letters,
    user,
)
from tito_core import Message


def test_the_first_prompt_may_be_spelled_differently() -> None:
    prompt = [
        *TOY.encode("<|im_start|>user\n"),
        *letters("ab"),
        *TOY.encode("<|im_end|>\n<|im_start|>assistant\n"),
    ]
    audited = Conversation().turn("yes", new=[user("ab")], prompt_ids=prompt).audit()
    assert causes_of(audited) == [("t0", "PROMPT", "RETOKENIZED")]


def test_what_was_said_between_turns_is_written_differently_later() -> None:
    conversation = Conversation().turn("yes").turn("so").turn("then")

    audited = conversation.audit(Hiding())
    assert audited.breaks[0].detail == "earlier messages are written differently"
    assert causes_of(audited) == [("t0", "PROMPT", "REWRITTEN"), ("t1", "ENVIRONMENT", "REWRITTEN")]


def test_a_tool_answer_that_is_spelled_differently() -> None:
    conversation = Conversation().turn("yes")
    tail = [
        *TOY.encode("\n<|im_start|>user\n"),
        *letters("ab"),
        *TOY.encode("<|im_end|>\n<|im_start|>assistant\n"),
    ]
    conversation.turn("so", new=[user("ab")], prompt_ids=[*conversation.calls[0].ids, *tail])
    assert causes_of(conversation.audit()) == [("t1", "ENVIRONMENT", "RETOKENIZED")]


class Hiding(Family):
    """Shows no question but the last."""

    def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
        last = len(messages) - 1
        hidden = [
            {**message, "content": "gone"} if message["role"] == "user" and place < last else message
            for place, message in enumerate(messages)
        ]
        return super().write(hidden, key, opener=opener)


class Opening(Family):
    """Asks for thinking, and forgets that it did."""

    def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
        return super().write(messages, key, opener=opener) + "<think>" * opener


def test_the_generation_prompt_is_not_what_history_has() -> None:
    """What the model was prompted with to think is gone once its turn is history."""
    family = Opening()
    first = [user()]
    sent = list(family.ids(first, None, add_generation_prompt=True))
    conversation = Conversation().turn(
        "hm</think>yes", assistant("yes", reasoning_content="hm"), prompt=first, prompt_ids=sent
    )
    tail = TOY.encode("\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n<think>")
    conversation.turn("so", prompt_ids=[*conversation.calls[0].ids, *tail])
    assert causes_of(conversation.audit(Opening(forgetful))) == [("t0", "REASONING", "THINKING")]
    assert causes_of(conversation.audit(family)) == []


def test_a_generation_prompt_that_is_not_in_history_is_named() -> None:
    family, first = Opening(), [user()]
    sent = family.ids(first, None, add_generation_prompt=True)
    conversation = Conversation().turn("yes", prompt=first, prompt_ids=sent)
    tail = TOY.encode("\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n<think>")
    conversation.turn("so", prompt_ids=[*conversation.calls[0].ids, *tail])
    assert causes_of(conversation.audit(family)) == [("t0", "OPENER", "THINKING")]
