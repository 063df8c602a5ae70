"""A text as a message, at once or piece by piece."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_io.embedded import FaultRates, Sampler, SamplingSettings, generate
from tito_io.embedded.parsing import DeltaParser, ParsedCall, ParsedText, parse, split_reasoning, tag_begun

from .embedded_client import prompt

GOOD = '<tool_call>\n{"name": "f", "arguments": {"a":1,"b":"\\u00e9"}}\n</tool_call>'
DEEP = f"<tool_call>\n{'[' * 1500}{']' * 1500}\n</tool_call>"
BAD = '<tool_call>\n{"name": "f", "arguments": {"a": }}\n</tool_call>'
F = ParsedCall("f", '{"a": 1, "b": "é"}')

CASES = {
    "words": ("So.", ParsedText("So.", None), ParsedText(None, "So.")),
    "nothing": ("", ParsedText(None, None), ParsedText(None, "")),
    "thought": ("<think>\na\n</think>\n\nb", ParsedText("\na\n", "\n\nb"), None),
    "thought alone": ("<think>a</think>", ParsedText("a", None), None),
    "no thought": ("</think>b", ParsedText(None, "b"), None),
    "endless thought": ("<think>\na b", ParsedText("\na b", None), None),
    "call": (GOOD, ParsedText(None, None, (F,)), ParsedText(None, None, (F,))),
    "call in a thought": ("<think>a" + GOOD, ParsedText("a", None, (F,)), None),
    "words and call": ("</think>b\n" + GOOD, ParsedText(None, "b\n", (F,)), None),
    "space and call": ("</think>\n\n" + GOOD, ParsedText(None, None, (F,)), None),
    "two calls": ("</think>" + GOOD + "\n" + GOOD, ParsedText(None, None, (F, F)), None),
    "words after": ("</think>" + GOOD + " and so", ParsedText(None, None, (F,)), None),
    "open call": ("</think>" + GOOD.removesuffix("</tool_call>"), ParsedText(None, None, (F,)), None),
    "broken call": ("</think>b" + BAD, ParsedText(None, "b" + BAD), None),
    "a call that nests too deep": ("</think>" + DEEP, ParsedText(None, DEEP), None),
    "one of two broken": ("</think>" + GOOD + BAD, ParsedText(None, GOOD + BAD), None),
    "no arguments": (
        '</think><tool_call>{"name": "f"}</tool_call>',
        ParsedText(None, '<tool_call>{"name": "f"}</tool_call>'),
        None,
    ),
    "a name that is none": (
        '</think><tool_call>{"name": 1, "arguments": 2}</tool_call>',
        ParsedText(None, '<tool_call>{"name": 1, "arguments": 2}</tool_call>'),
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_text_has_these_parts(case: str) -> None:
    text, thinking, plain = CASES[case]
    assert parse(text, thinking=True, tools=True) == thinking
    if plain is not None:
        assert parse(text, thinking=False, tools=True) == plain


def test_without_tools_a_call_is_words() -> None:
    assert parse(GOOD, thinking=False, tools=False) == ParsedText(None, GOOD)


def test_a_message_has_the_fields_of_the_wire() -> None:
    message = parse("<think>a</think>b" + GOOD, thinking=True, tools=True).message(
        lambda place: f"call-{place}"
    )
    function = {"name": "f", "arguments": F.arguments}
    assert message == {
        "role": "assistant",
        "content": "b",
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "tool_calls": [{"id": "call-0", "type": "function", "function": function}],
        "reasoning": "a",
    }


def test_a_message_without_calls_does_not_mention_them() -> None:
    assert "tool_calls" not in parse("a", thinking=False, tools=True).message(str)


def streamed(text: str, cuts: list[int], *, tools: bool = True) -> tuple[str, str, dict[int, list[str]]]:
    """Feed a text in pieces; return its thought, its words, and name and arguments of each call."""
    places = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    deltas = DeltaParser(thinking=True, tools=tools, call_id=str)
    thought = said = ""
    calls: dict[int, list[str]] = {}
    for number, (start, stop) in enumerate(pairwise(places)):
        delta = deltas.feed(text[start:stop], final=number == len(places) - 2)
        thought += delta.get("reasoning") or ""
        said += delta.get("content") or ""
        _merge(calls, delta.get("tool_calls", []))
    return thought, said, calls


def _merge(calls: dict[int, list[str]], new: list[dict[str, Any]]) -> None:
    """Add what a client adds: the name once, the arguments piece by piece."""
    for call in new:
        function = call["function"]
        if "name" in function:
            assert call["index"] == len(calls)
            assert call["id"] == str(call["index"])
            calls[call["index"]] = [function["name"], ""]
        calls[call["index"]][1] += function.get("arguments", "")


CUTS = st.lists(st.integers(0, 400), max_size=30)


@given(st.sampled_from([case for case in CASES if "broken" not in case]), CUTS)
def test_pieces_add_up_however_the_text_is_cut(case: str, cuts: list[int]) -> None:
    text = CASES[case][0]
    assert streamed(text, cuts) == streamed(text, [])
    assert streamed(text, cuts, tools=False) == streamed(text, [], tools=False)


@given(st.integers(0, 100_000), CUTS)
def test_a_stream_says_what_the_finished_text_says_unless_a_call_is_broken(
    seed: int, cuts: list[int]
) -> None:
    fault_rates = FaultRates(malformed=0.0, endless=0.0)
    text = generate(Sampler(seed, fault_rates), prompt(), SamplingSettings(max_tokens=2000)).text
    parsed = parse(text, thinking=True, tools=True)
    thought, said, calls = streamed(text, cuts)
    assert thought == (parsed.reasoning or "")
    assert said == (parsed.content or "") or (parsed.content is None and not said.strip())
    assert [name for name, _ in calls.values()] == [call.name for call in parsed.calls]
    for (_, written), call in zip(calls.values(), parsed.calls, strict=True):
        assert json.loads(written) == json.loads(call.arguments)


def test_a_stream_shows_a_broken_call_that_the_finished_text_does_not() -> None:
    text = "</think>b" + BAD
    assert streamed(text, [])[2] == {0: ["f", '{"a": }']}
    assert parse(text, thinking=True, tools=True).calls == ()


def test_half_a_character_in_a_call_can_be_written() -> None:
    """UTF-8 has no bytes for it, and the answer would be an error of the server."""
    text = '</think><tool_call>{"name": "f\\ud83d", "arguments": {"a": "\\ud83d"}}</tool_call>'
    (call,) = parse(text, thinking=True, tools=True).calls
    assert call == ParsedCall("f\ufffd", '{"a": "\ufffd"}')


def test_a_stream_keeps_the_arguments_as_they_were_sampled() -> None:
    assert streamed("</think>" + GOOD, [])[2] == {0: ["f", '{"a":1,"b":"\\u00e9"}']}


def test_a_tag_begun_at_the_end_is_words() -> None:
    assert streamed("</think>a <tool_ca", [3, 12])[1] == "a <tool_ca"
    assert streamed("a </thi", [3])[0] == "a </thi"


@given(st.text("<>/thinkol_ca", max_size=20))
def test_what_is_held_back_begins_a_tag(text: str) -> None:
    size = tag_begun(text, "<think>", "</think>")
    assert any(tag.startswith(text[len(text) - size :]) for tag in ("<think>", "</think>"))
    thought, said = split_reasoning(text, final=False)
    whole, rest = split_reasoning(text, final=True)
    assert whole.startswith(thought)
    assert said == rest
