"""A key that the template reads is part of a message; a key that it ignores is not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.core import example
from tito_core import Message, Policy, Reason, Refusal, Step, Stitched, TemplateRefused, answer, try_stitch
from tito_core.seams.keys import MOST, differing_keys, read_key_questions

SUFFIX = (example.CLOSE,)
TOOLS = {"role": "system", "content": "Be brief.", "tools": [{"name": "f"}]}


def reading(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write the tools of system messages, as GLM-4's template does, and an assistant's `thinking`."""
    ids: list[int] = []
    for message in messages:
        ids += example.text(str(message.get("tools"))) if message["role"] == "system" else []
        ids += example.text(str(message.get("thinking"))) if message["role"] == "assistant" else []
        ids += example.tokenize([message], add_generation_prompt=False)
    return ids + example.tokenize([], add_generation_prompt=add_generation_prompt)


def stitched(
    ours: dict[str, Any], theirs: dict[str, Any], tokenize: Any, **policy: Any
) -> Stitched | Refusal:
    step = Step(
        prompt=[ours, example.user()],
        completion=[example.assistant()],
        prompt_ids=[5, 6],
        completion_ids=[900, example.CLOSE],
    )
    prompt = [theirs, example.user(), example.assistant(), example.user("more")]
    return try_stitch([step], prompt, SUFFIX, tokenize, policy=Policy(**policy))


def test_another_value_of_a_key_that_the_template_reads_is_another_message() -> None:
    changed = {**TOOLS, "tools": [{"name": "g"}]}
    refusal = stitched(TOOLS, changed, reading)
    assert refusal == Refusal(Reason.KEY_DIFFERS, "the template may read 'tools', in which a message differs")
    assert isinstance(stitched(TOOLS, dict(TOOLS), reading), Stitched)
    assert isinstance(stitched(TOOLS, changed, example.tokenize), Stitched)


def test_a_key_that_is_gone_is_another_value() -> None:
    without = {key: value for key, value in TOOLS.items() if key != "tools"}
    assert isinstance(stitched(TOOLS, without, reading), Refusal)
    assert isinstance(stitched(without, TOOLS, reading), Refusal)


def test_a_policy_names_keys_that_must_be_equal_whatever_the_template_does() -> None:
    changed = {**TOOLS, "tools": None}
    assert isinstance(stitched(TOOLS, changed, example.tokenize), Stitched)
    refusal = stitched(TOOLS, changed, example.tokenize, further_keys={"tools"})
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.NO_PREFIX
    assert isinstance(stitched(TOOLS, changed, example.tokenize, further_keys={"other"}), Stitched)


@pytest.mark.parametrize(
    ("ours", "theirs", "key"),
    [
        (
            {"role": "assistant", "content": "x", "thinking": "a"},
            {"role": "assistant", "content": "x"},
            "thinking",
        ),
        (
            {"role": "assistant", "content": "x", "id": 1},
            {"role": "assistant", "content": "x", "id": 2},
            None,
        ),
        ({"role": "user", "content": "x", "tools": 1}, {"role": "user", "content": "x"}, None),
        ({"role": "tool", "content": "x", "note": 1}, {"role": "tool", "content": "x"}, None),
        ({"role": "user", "content": "x"}, {"role": "user", "content": "x"}, None),
    ],
)
def test_the_template_is_asked(ours: dict[str, Any], theirs: dict[str, Any], key: str | None) -> None:
    assert answer(read_key_questions([(ours, theirs)]), reading) == key


def test_an_answer_is_asked_about_after_a_question() -> None:
    def alternating(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        roles = [one["role"] for one in messages]
        if any(one == other for one, other in pairwise(roles)):
            raise TemplateRefused("roles alternate")
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    pair = ({"role": "assistant", "content": "x", "id": 1}, {"role": "assistant", "content": "x", "id": 2})
    assert answer(read_key_questions([pair]), alternating) is None


def test_a_message_that_the_template_never_takes_shows_nothing() -> None:
    def refusing(*_: object, **__: object) -> list[int]:
        raise TemplateRefused("no")

    pair = ({"role": "user", "content": "x", "id": 1}, {"role": "user", "content": "x", "id": 2})
    assert answer(read_key_questions([pair]), refusing) == "id"


@pytest.mark.parametrize("taken", [str, dict])
def test_calls_are_asked_about_in_the_form_that_the_template_takes(taken: type) -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        calls = [call for message in messages for call in message.get("tool_calls") or ()]
        if not all(isinstance(call["function"]["arguments"], taken) for call in calls):
            raise TemplateRefused("arguments have another form")
        return reading(messages, add_generation_prompt=add_generation_prompt)

    function = {"name": "f", "arguments": "{}" if taken is dict else {}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    for message in (call, result):
        for key, found in (("note", None), ("thinking", "thinking" if message is call else None)):
            assert answer(read_key_questions([(message, {**message, key: 2})]), tokenize) == found


def test_the_questions_are_few_however_many_messages_differ() -> None:
    asked: list[object] = []

    def counting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        asked.append(messages)
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    alike = [
        ({"role": "user", "content": "x", "at": i}, {"role": "user", "content": "x", "at": -1})
        for i in range(99)
    ]
    assert answer(read_key_questions(alike), counting) is None
    assert len(asked) == 2
    unlike = [
        ({"role": "user", "content": "x", f"k{i}": 1}, {"role": "user", "content": "x"}) for i in range(99)
    ]
    asked.clear()
    assert answer(read_key_questions(unlike), counting) in {f"k{i}" for i in range(99)}
    assert len(asked) == MOST


def test_a_client_that_adds_a_key_to_every_message_is_believed_where_calls_are_texts_alone() -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        calls = [call["function"]["arguments"] for one in messages for call in one.get("tool_calls") or ()]
        if any(isinstance(arguments, dict) for arguments in calls):
            raise TemplateRefused("arguments are texts")
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    function = {"name": "find", "arguments": "{}"}
    call = {**example.assistant(""), "tool_calls": [{"id": "call1", "function": function}]}
    found = {"role": "tool", "tool_call_id": "call1", "content": "7"}
    kinds = [example.user(), call, found, {**found, "content": ""}, example.assistant()]
    pairs = [(message, {**message, "cached": True}) for message in kinds]
    assert answer(read_key_questions(pairs), tokenize) is None


def test_keys_of_the_identity_are_left_to_the_comparison() -> None:
    assert differing_keys({"role": "user", "content": "a"}, {"role": "user", "content": "b"}) == frozenset()
    assert differing_keys({"role": "user", "x": 1, "y": 2}, {"role": "user", "x": 1.0, "y": 2}) == {"x"}
