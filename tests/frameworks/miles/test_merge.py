"""Merged ids: the given ones, and what the chat template writes after them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from miles_tito_tokenizers import TITOTokenizer, apply_chat_template

from tests.frameworks.turns import sampled_prompts
from tito_io.integrations.miles import BridgeTITOTokenizer, CannotMergeError

QUESTION: dict[str, Any] = {"role": "user", "content": "What is 3 + 4?"}
TURN: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3, "b": 4}'}}
    ],
}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "1", "content": "7"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
DONE, OVER = 1517, 1515


def rendered(tokenizer: Any, messages: list[Any], **options: Any) -> list[int]:
    """Return what Miles renders."""
    ids = apply_chat_template(messages, tokenizer=tokenizer, tokenize=True, **options)
    return list(ids)


def sampled(tokenizer: Any, *stop: int) -> list[int]:
    """Return the ids of a call, letter by letter, which no render gives."""
    text = '<tool_call>{"name":"add", "arguments": {"a":3,"b":4}}</tool_call>'
    return [*chain(*(tokenizer.encode(letter) for letter in text)), *stop]


def test_every_case_of_a_template_is_merged_or_refused(tokenizer: Any) -> None:
    merger: Any = BridgeTITOTokenizer(tokenizer, allowed_append_roles=["tool", "user"])
    cases = list(sampled_prompts(tokenizer, [DONE, OVER]))
    for case in cases:
        old = [*case.history, case.turn]
        assert merger.merge_tokens(old, [*old, *case.new], case.ids, case.tools) == case.expected, case.case
    assert len(cases) >= 12
    assert (merger.built, merger.refused) == ({"ids": len(cases)}, {})


def test_stops_may_be_given(tokenizer: Any) -> None:
    """An id that is no stop is text: the close is written after it, as after a turn that was cut."""
    odd = tokenizer.encode("river")[-1]
    ids = [*rendered(tokenizer, [QUESTION]), *sampled(tokenizer, odd)]
    messages = [QUESTION, TURN, RESULT]
    for stops in ([DONE], [DONE, odd]):
        merged = BridgeTITOTokenizer(tokenizer, stop_ids=stops).merge_tokens(messages[:2], messages, ids)
        assert merged[: len(ids) + 1] == [*ids, DONE]


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([QUESTION, TURN, {"role": "user", "content": "Go on."}], "has role='user', allowed"),
        ([QUESTION, {**TURN, "content": "No."}, RESULT], "message mismatch at index 1"),
        ([QUESTION], "are fewer than stored messages"),
    ],
)
def test_messages_must_extend_the_old_ones(tokenizer: Any, messages: list[Any], match: str) -> None:
    """These errors are Miles' own."""
    for merger in (BridgeTITOTokenizer(tokenizer), TITOTokenizer(tokenizer)):
        with pytest.raises(ValueError, match=match):
            merger.merge_tokens([QUESTION, TURN], messages, [1, 2, 3])


def test_a_refusal_is_a_value_error_and_counted(tokenizer: Any) -> None:
    merger = BridgeTITOTokenizer(tokenizer)
    with pytest.raises(CannotMergeError, match="NOTHING_NEW") as caught:
        merger.merge_tokens([QUESTION, TURN], [QUESTION, TURN], [1, 2, 3])
    assert isinstance(caught.value, ValueError)
    assert merger.refused == {"NOTHING_NEW": 1}


def continued(tokenizer: Any, template: str, tools: Any = None) -> str:
    """Return what is written after a call by the family's template with some more at its end."""
    tokenizer.chat_template += template
    ids = [*rendered(tokenizer, [QUESTION], tools=tools), *sampled(tokenizer, DONE)]
    merged = BridgeTITOTokenizer(tokenizer).merge_tokens(
        [QUESTION, TURN], [QUESTION, TURN, RESULT], ids, tools
    )
    return str(tokenizer.decode(merged[len(ids) :]))


def test_the_template_gets_the_tools(tokenizer: Any) -> None:
    named = "{%- if add_generation_prompt and tools -%}{{ tools[0].function.name }}{%- endif -%}"
    assert continued(tokenizer, named, [TOOL]).endswith("<|turn|>assistant\nadd")


def test_the_template_gets_arguments_as_objects(tokenizer: Any) -> None:
    strict = (
        "{%- for message in messages -%}{%- for call in message.tool_calls or [] -%}"
        "{%- if call.function.arguments is string -%}{{ raise_exception('a text') }}{%- endif -%}"
        "{%- endfor -%}{%- endfor -%}"
    )
    assert continued(tokenizer, strict).endswith("<|turn|>assistant\n")
