"""The close of an assistant turn, found by asking."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.core import example
from tests.core.example import shown
from tito_core import InputError, Message, Refusal, TemplateRefused, answer, suffix_ids
from tito_core.seams.prove import prove_questions
from tito_core.seams.suffix import takes_parts_questions
from tito_core.seams.turn import SampledTurn


class Template:
    """`talk`, with a close of two ids and one quirk."""

    def __init__(self, quirk: str = "") -> None:
        self.quirk = quirk

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        roles = [message["role"] for message in messages]
        if self.quirk == "first system" and "system" in roles[1:]:
            raise TemplateRefused("a system message comes first")
        for message in messages:
            ids += example.tokenize([message], add_generation_prompt=False)
            ids += [9] if message["role"] == "assistant" else []
        if self.quirk == "one user" and roles.count("user") > 1:
            raise TemplateRefused("a user speaks once")
        if self.quirk in {"open system", "one user"} and roles[-1] == "system":
            ids[ids.index(9)] = 8
        silent = self.quirk == "continues" and roles[-1] == "assistant"
        return [*ids, example.OPEN, 12] if add_generation_prompt and not silent else ids


def test_the_close_is_what_follows_less_what_makes_the_model_speak() -> None:
    assert suffix_ids(Template()) == (example.CLOSE, 9)


def test_a_template_that_lets_an_answer_go_on_writes_no_generation_prompt_after_it() -> None:
    assert suffix_ids(Template("continues")) == (example.CLOSE, 9)


def test_a_system_text_that_may_only_come_first_is_not_asked_about() -> None:
    assert suffix_ids(Template("first system")) == (example.CLOSE, 9)


def test_the_close_is_what_stands_before_any_message() -> None:
    assert suffix_ids(Template("open system")) == (example.CLOSE,)


def test_a_template_without_consecutive_user_messages_has_a_suffix() -> None:
    assert suffix_ids(Template("one user")) == (example.CLOSE,)


def test_a_close_that_begins_with_a_space_of_the_last_word_is_not_located() -> None:
    """A word takes the space after it to its token. Without the space the close would be too short."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        text = "".join(f"{message['role']}: {message['content']} </s>" for message in messages)
        words = re.findall(r"</s>|[^\s<]+\s?|.", text + "assistant: " * add_generation_prompt)
        return [int.from_bytes(word.encode()) % 2**31 for word in words]

    with pytest.raises(InputError, match="loses an assistant's content, or merges it"):
        suffix_ids(tokenize)


def test_a_template_in_which_no_turn_can_be_located_has_no_suffix() -> None:
    tokenize = shown(lambda messages: [one for one in messages if one["role"] != "assistant"])
    words = "^the chat template loses an assistant's content, or merges it: nothing can be stitched$"
    with pytest.raises(InputError, match=words):
        suffix_ids(tokenize)


def test_the_system_text_that_a_template_demands_is_asked_with_as_a_copy() -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if messages[0]["role"] != "system":
            raise TemplateRefused("a system message comes first")
        ids = Template()(messages, add_generation_prompt=add_generation_prompt)
        for message in messages:
            assert isinstance(message, dict)
            message.clear()
        return ids

    assert [suffix_ids(tokenize) for _ in range(2)] == [(example.CLOSE, 9)] * 2


def test_a_template_that_prints_a_list_of_parts_does_not_take_it() -> None:
    """It loses texts; one that stands in a printed list is no content."""
    tokenize = shown(
        lambda messages: [
            {**one, "content": "..." if isinstance(one["content"], str) else str(one["content"])}
            for one in messages
        ]
    )
    with pytest.raises(InputError, match="the chat template loses an assistant's content"):
        suffix_ids(tokenize)
    turn = SampledTurn(message=example.assistant(), stop=None, suffix=(example.CLOSE,))
    refusal = answer(prove_questions(turn, (example.user("more"),)), tokenize)
    assert isinstance(refusal, Refusal)


def test_a_template_that_refuses_a_part_with_another_key_is_not_asked_in_parts() -> None:
    """What it does with that key would show whether it prints the list."""

    def strict(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        texts = []
        for message in messages:
            if not isinstance(message["content"], list) or any(len(part) > 2 for part in message["content"]):
                raise TemplateRefused("parts with a type and a text alone")
            texts.append({**message, "content": "".join(part["text"] for part in message["content"])})
        return example.tokenize(texts, add_generation_prompt=add_generation_prompt)

    turn = SampledTurn(message={"role": "assistant", "content": "hello"}, stop=None, suffix=(example.CLOSE,))
    found = answer(prove_questions(turn, (example.user("more"),)), strict)
    assert isinstance(found, Refusal)
    assert answer(takes_parts_questions(), strict) is False
