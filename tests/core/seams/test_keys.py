"""A key that the template reads is part of a message; a key that it ignores is not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.core import example
from tests.core.example import Recorder, each, refusing, takes_arguments
from tito_core import Policy, Reason, Refusal, Step, Stitched, answer, try_stitch
from tito_core.seams.keys import MOST, differing_keys, read_key_questions

SUFFIX = (example.CLOSE,)
TOOLS = {"role": "system", "content": "Be brief.", "tools": [{"name": "f"}]}


reading = each(
    lambda m, ids, _: [
        *(example.text(str(m.get("tools"))) if m["role"] == "system" else []),
        *(example.text(str(m.get("thinking"))) if m["role"] == "assistant" else []),
        *ids,
    ]
)
"""Writes the tools of system messages, as GLM-4's template does, and an assistant's `thinking`."""


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
    alternating = refusing(lambda messages: any(a["role"] == b["role"] for a, b in pairwise(messages)))
    pair = ({"role": "assistant", "content": "x", "id": 1}, {"role": "assistant", "content": "x", "id": 2})
    assert answer(read_key_questions([pair]), alternating) is None


def test_a_message_that_the_template_never_takes_shows_nothing() -> None:
    pair = ({"role": "user", "content": "x", "id": 1}, {"role": "user", "content": "x", "id": 2})
    assert answer(read_key_questions([pair]), refusing(lambda _: True)) == "id"


@pytest.mark.parametrize("taken", [str, dict])
def test_calls_are_asked_about_in_the_form_that_the_template_takes(taken: type) -> None:
    tokenize = takes_arguments(taken, reading)
    function = {"name": "f", "arguments": "{}" if taken is dict else {}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    for message in (call, result):
        for key, found in (("note", None), ("thinking", "thinking" if message is call else None)):
            assert answer(read_key_questions([(message, {**message, key: 2})]), tokenize) == found


def test_the_questions_are_few_however_many_messages_differ() -> None:
    recorder = Recorder()
    alike = [
        ({"role": "user", "content": "x", "at": i}, {"role": "user", "content": "x", "at": -1})
        for i in range(99)
    ]
    assert answer(read_key_questions(alike), recorder) is None
    assert len(recorder.asked) == 2
    unlike = [
        ({"role": "user", "content": "x", f"k{i}": 1}, {"role": "user", "content": "x"}) for i in range(99)
    ]
    recorder.asked.clear()
    assert answer(read_key_questions(unlike), recorder) in {f"k{i}" for i in range(99)}
    assert len(recorder.asked) == MOST


def test_a_client_that_adds_a_key_to_every_message_is_believed_where_calls_are_texts_alone() -> None:
    tokenize = takes_arguments(str)
    function = {"name": "find", "arguments": "{}"}
    call = {**example.assistant(""), "tool_calls": [{"id": "call1", "function": function}]}
    found = {"role": "tool", "tool_call_id": "call1", "content": "7"}
    kinds = [example.user(), call, found, {**found, "content": ""}, example.assistant()]
    pairs = [(message, {**message, "cached": True}) for message in kinds]
    assert answer(read_key_questions(pairs), tokenize) is None


def test_keys_of_the_identity_are_left_to_the_comparison() -> None:
    assert differing_keys({"role": "user", "content": "a"}, {"role": "user", "content": "b"}) == frozenset()
    assert differing_keys({"role": "user", "x": 1, "y": 2}, {"role": "user", "x": 1.0, "y": 2}) == {"x"}
