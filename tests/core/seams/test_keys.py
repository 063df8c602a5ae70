"""A key that the template reads is part of a message; a key that it ignores is not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.core import example
from tests.core.example import Recorder, each, refusing, takes_arguments
from tito_core import Forgiveness, Policy, Reason, Refusal, Step, Stitched, answer, try_stitch
from tito_core.seams.keys import MOST, differing_keys, read_key_questions
from tito_core.seams.probe import probe

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


def continued(tokenize: Any, turn: dict[str, Any], *new: dict[str, Any], **more: Any) -> Stitched | Refusal:
    """Continue a turn that comes back with more keys than it was sampled with."""
    step = Step(
        prompt=[example.user()], completion=[turn], prompt_ids=[5, 6], completion_ids=[900, example.CLOSE]
    )
    return try_stitch([step], [example.user(), {**turn, **more}, *new], SUFFIX, tokenize)


named_header = each(lambda m, ids, _: [*ids[:2], *example.text(str(m.get("name"))), *ids[2:]])
named_result = each(
    lambda m, ids, before: ids + (example.text(str(before[-1].get("name"))) if m["role"] == "tool" else [])
)
named_prompt = example.speaking(
    lambda messages: example.text(str([m.get("name") for m in messages if m["role"] == "assistant"][-1:]))
)
one_name = each(lambda m, ids, _: [*ids, *([77] if m.get("name") == "example" else [])])


@pytest.mark.parametrize("tokenize", [named_header, named_prompt])
def test_a_name_that_the_template_writes_is_never_ignored(tokenize: Any) -> None:
    """In the turn's header, and in the prompt for the next turn."""
    for turn, new in ((example.assistant(), example.user("more")), (example.calling(), example.RESULT)):
        refusal = continued(tokenize, turn, new, name="model")
        assert refusal == Refusal(
            Reason.KEY_DIFFERS, "the template may read 'name', in which a message differs"
        )
        assert isinstance(continued(tokenize, {**turn, "name": "model"}, new), Stitched)


def test_a_name_that_is_written_with_the_result_of_a_call_is_never_ignored() -> None:
    refusal = continued(named_result, example.calling(), example.RESULT, name="model")
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.KEY_DIFFERS


def test_each_name_is_asked_about() -> None:
    """A template may know some of them."""
    turns = [example.assistant(), {**example.assistant(), "name": "model"}]
    pairs = [(turn, {**turn, "name": name}) for turn in turns for name in ("agent", "example")]
    assert answer(read_key_questions(pairs), one_name) == "name"
    assert answer(read_key_questions(pairs[::2]), one_name) is None


def test_a_name_that_the_template_ignores_is_on_the_receipt() -> None:
    for turn, new in ((example.assistant(), example.user("more")), (example.calling(), example.RESULT)):
        plain = continued(example.tokenize, turn, new)
        named = continued(example.tokenize, turn, new, name="model")
        assert isinstance(plain, Stitched)
        assert isinstance(named, Stitched)
        assert list(named.ids) == list(plain.ids)
        assert named.forgiven == {Forgiveness.OTHER_KEYS}


def test_a_profile_knows_a_turn_whose_name_the_template_ignores() -> None:
    """What is asked beside the turn's own questions is whether the name is read."""
    recorder = Recorder()
    profile = probe(recorder)
    counts = []
    for more in ({}, {"name": "model"}):
        recorder.asked.clear()
        step = example.step()
        prompt = [*step.prompt, {**step.completion[0], **more}, example.user("more")]
        assert isinstance(try_stitch([step], prompt, profile.suffix, recorder, profile=profile), Stitched)
        counts.append(len(recorder.asked))
    assert counts[1] == counts[0] + 4


def test_keys_of_text_parts_are_ignored_where_the_template_ignores_them() -> None:
    parts = [example.part("a"), {**example.part("b"), "note": "n"}]
    pair = (
        {"role": "user", "content": [example.part("a"), example.part("b")]},
        {"role": "user", "content": parts},
    )
    assert answer(read_key_questions([pair]), example.by_parts) is None
    assert answer(read_key_questions([pair]), example.tokenize) == "content"  # it writes the whole list


def test_keys_of_a_lone_text_part_never_reach_the_template() -> None:
    recorder = Recorder()
    part = {**example.part("x"), "role": "assistant", "tool_calls": []}
    assert (
        answer(
            read_key_questions([({"role": "user", "content": "x"}, {"role": "user", "content": [part]})]),
            recorder,
        )
        is None
    )
    assert recorder.asked == []
