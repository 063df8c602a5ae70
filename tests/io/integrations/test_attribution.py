"""Whose each id of a rendered conversation is."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from tito_core import TemplateRefused
from tito_io.families import Family
from tito_io.families.tokenizer_family import TokenizerFamily
from tito_io.integrations.attribution import Attribution, attributed

SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "How is the weather?"}
ANSWER = {"role": "assistant", "content": "Sunny.", "reasoning_content": "I look."}
CALLS = [
    {"id": one, "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    for one in ("a", "b")
]
RESULTS = [{"role": "tool", "tool_call_id": one, "name": "weather", "content": "rain"} for one in ("a", "b")]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}


def texts(family: TokenizerFamily, found: Attribution) -> list[tuple[str, str]]:
    """Return texts with their marks: the message's place, `c` for content and `s` for sampled ids."""
    marks = [
        f"{owner}{'c' * content}{'s' * sampled}"
        for owner, content, sampled in zip(found.owners, found.content, found.sampled, strict=True)
    ]
    groups = groupby(zip(marks, found.ids, strict=True), key=lambda pair: pair[0])
    return [(mark, family.decode([index for _, index in pairs])) for mark, pairs in groups]


def assert_unknown(found: Attribution) -> None:
    assert (set(found.owners), found.content, found.sampled) == ({-1}, [], [])


def test_every_id_has_its_message(tokenizer: Any) -> None:
    family = Family.of(tokenizer)
    messages = [SYSTEM, QUESTION, ANSWER, QUESTION]
    found = attributed(family, messages, add_generation_prompt=True)
    assert found.ids == family.ids(messages, add_generation_prompt=True)
    assert texts(family, found) == [
        ("0", "<|turn|>system\n"),
        ("0c", "Be brief."),
        ("0", "<|done|>\n"),
        ("1", "<|turn|>user\n"),
        ("1c", "How is the weather?"),
        ("1", "<|done|>\n"),
        ("2", "<|turn|>assistant\n"),
        ("2cs", "Sunny.<|done|>"),
        ("2", "\n"),
        ("3", "<|turn|>user\n"),
        ("3c", "How is the weather?"),
        ("3", "<|done|>\n"),
        ("-1", "<|turn|>assistant\n"),
    ]


def test_calls_and_their_results(tokenizer: Any) -> None:
    family = Family.of(tokenizer)
    messages: list[dict[str, Any]] = [
        QUESTION,
        {**ANSWER, "content": "", "tool_calls": CALLS},
        *RESULTS,
        ANSWER,
    ]
    found = texts(family, attributed(family, messages, tools=[TOOL]))
    assert found[0][0] == "-1"
    assert "weather" in found[0][1], "the tools before the first message belong to none"
    sampled = [text for mark, text in found if mark.endswith("s")]
    assert sampled[0].startswith("<think>\nI look.\n</think>\n\n<tool_call>")
    assert sampled[0].endswith("</tool_call><|done|>")
    assert sampled[1] == "<think>\nI look.\n</think>\n\nSunny.<|done|>"
    assert [(mark, text) for mark, text in found if mark in ("2c", "3c")] == [("2c", "rain"), ("3c", "rain")]
    assert "".join(text for _, text in found) == family.text(messages, tools=[TOOL])


@pytest.mark.parametrize("history", [[], [QUESTION, ANSWER], [SYSTEM]])
def test_a_generation_prompt_after_an_assistant_belongs_to_none(
    tokenizer: Any, history: list[dict[str, Any]]
) -> None:
    family = Family.of(tokenizer)
    messages = [*history, QUESTION, ANSWER]
    found, closed = (attributed(family, messages, add_generation_prompt=one) for one in (True, False))
    assert found.ids == family.ids(messages, add_generation_prompt=True)
    assert texts(family, found) == [*texts(family, closed), ("-1", "<|turn|>assistant\n")]


def test_a_generation_prompt_that_is_a_stop_ends_no_turn(tokenizer: Any) -> None:
    template = (
        "{% for m in messages %}{{ '<|turn|>' if m.role == 'user' else '<|over|>' }}"
        "{{ m.content }}<|done|>\n{% endfor %}{% if add_generation_prompt %}<|over|>{% endif %}"
    )
    stops = tokenizer.convert_tokens_to_ids(["<|done|>", "<|over|>"])
    family = Family.of(tokenizer, template=template, stop_ids=stops)
    messages = [QUESTION, {"role": "assistant", "content": "Sunny."}]
    found = texts(family, attributed(family, messages, add_generation_prompt=True))
    assert found[-3:] == [("1cs", "Sunny.<|done|>"), ("1", "\n"), ("-1", "<|over|>")]


def test_a_generation_prompt_that_changes_the_turn_before_leaves_owners_unknown(tokenizer: Any) -> None:
    template = (
        "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}"
        "{{ '!' if loop.last and add_generation_prompt else '.' }}<|done|>{% endfor %}"
        "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
    )
    family = Family.of(tokenizer, template=template)
    said = {"role": "assistant", "content": "Sunny"}
    assert_unknown(attributed(family, [QUESTION, said], add_generation_prompt=True))


def test_owners_are_unknown_where_a_tokenizer_cannot_be_called(tokenizer: Any) -> None:
    class Offsetless:
        """What renderers lets a caller bring: a tokenizer that encodes, and gives no offsets."""

        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer, name)

    found = attributed(Family.of(Offsetless()), [QUESTION], add_generation_prompt=True)
    assert found.ids == Family.of(tokenizer).ids([QUESTION], add_generation_prompt=True)
    assert_unknown(found)


def test_the_prefilled_part_of_a_turn_is_not_sampled(tokenizer: Any) -> None:
    template = (
        "{% for m in messages %}<|turn|>{{ m.role }}\n{% if m.role == 'assistant' %}<think>\n{% endif %}"
        "{{ m.content }}<|done|>{% endfor %}"
        "{% if add_generation_prompt %}<|turn|>assistant\n<think>\n{% endif %}"
    )
    family = Family.of(tokenizer, template=template)
    found = texts(family, attributed(family, [QUESTION, {"role": "assistant", "content": "Sunny."}]))
    assert found[-2:] == [("1", "<|turn|>assistant\n<think>\n"), ("1cs", "Sunny.<|done|>")]


def test_a_stop_that_opens_the_next_message_ends_the_turn(tokenizer: Any) -> None:
    template = (
        "{% for m in messages %}{{ '<|turn|>' if m.role == 'user' else '<|over|>' }}"
        "{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|over|>{% endif %}"
    )
    family = Family.of(tokenizer, template=template, stop_ids=[tokenizer.convert_tokens_to_ids("<|turn|>")])
    found = attributed(family, [QUESTION, {"role": "assistant", "content": "Sunny."}, QUESTION])
    assert texts(family, found)[2:] == [
        ("1", "<|over|>"),
        ("1cs", "Sunny.<|turn|>"),
        ("2c", "How is the weather?"),
    ]


def test_a_turn_ends_at_the_first_stop_of_several_in_a_row(tokenizer: Any) -> None:
    """The template may write another stop behind the one that the model samples."""
    template = (
        "{% for m in messages %}<|turn|>{{ m.content }}<|done|>"
        "{{ '<|over|>' * 2 if m.role == 'assistant' else '' }}{% endfor %}"
        "{% if add_generation_prompt %}<|turn|>{% endif %}"
    )
    stops = tokenizer.convert_tokens_to_ids(["<|done|>", "<|over|>"])
    family = Family.of(tokenizer, template=template, stop_ids=stops)
    found = attributed(family, [QUESTION, {"role": "assistant", "content": "Sunny."}, QUESTION])
    assert texts(family, found)[3:6] == [
        ("1", "<|turn|>"),
        ("1cs", "Sunny.<|done|>"),
        ("1", "<|over|><|over|>"),
    ]


def test_a_stop_in_a_turn_does_not_end_it(tokenizer: Any) -> None:
    """A model that is not stopped there, such as one that quotes a prompt, goes on after it."""
    family = Family.of(tokenizer)
    said = {"role": "assistant", "content": "Sunny.<|done|>So it is.<|done|><|done|>Yes."}
    found = texts(family, attributed(family, [QUESTION, said, QUESTION]))
    assert [text for mark, text in found if mark == "1cs"] == [f"{said['content']}<|done|>"]


def test_a_first_message_that_is_rejected_alone_may_end_as_turns_do(tokenizer: Any) -> None:
    template = "{% if messages[-1].role == 'system' %}{{ raise_exception('nobody asks') }}{% endif %}"
    family = Family.of(tokenizer, template=template + tokenizer.chat_template)
    found = texts(family, attributed(family, [SYSTEM, QUESTION]))
    assert [mark for mark, _ in found] == ["0", "0c", "0", "1", "1c", "1"]
    assert found[2:4] == [("0", "<|done|>\n"), ("1", "<|turn|>user\n")]


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
        "{% for m in messages | reverse %}[{{ m.content }}]{% endfor %}",
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{{ m.content | length }}{% endfor %}",
    ],
    ids=["changed", "reordered", "twice", "measured"],
)
def test_contents_that_are_not_found_leave_the_ids_without_owners(tokenizer: Any, template: str) -> None:
    family = Family.of(tokenizer, template=template, stop_ids=[1])
    found = attributed(family, [SYSTEM, QUESTION])
    assert found.ids == family.ids([SYSTEM, QUESTION])
    assert_unknown(found)


def test_two_assistants_in_a_row_are_not_told_apart(tokenizer: Any) -> None:
    found = attributed(Family.of(tokenizer), [QUESTION, ANSWER, ANSWER])
    assert_unknown(found)


def test_a_refused_conversation_is_refused(tokenizer: Any) -> None:
    family = Family.of(tokenizer, template="{{ raise_exception('no') }}")
    with pytest.raises(TemplateRefused, match="no"):
        attributed(family, [QUESTION])
