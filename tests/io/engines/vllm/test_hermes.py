"""Texts in the Hermes manner, taken apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_io.engines.replies.hermes import (
    ANY_TAG,
    CALL,
    CALLED,
    TAGS,
    THINK,
    THOUGHT,
    ParsedMessage,
    Tags,
    parse,
)

IDS = dict(zip(TAGS, (90, 91, 92, 93), strict=True))
KNOWN = Tags(IDS, frozenset([10]))
F = '{"name": "f", "arguments": {"a": 1}}'
WELL = ("f", '{"a": 1}')


def taken(text: str, **options: Any) -> ParsedMessage:
    """Take a text apart whose tags all count."""
    return parse(text, Tags().marks(text), **options)


def test_every_text_can_be_written() -> None:
    half, whole = "a\ud83d", "a\ufffd"
    found = ParsedMessage(half, half, ((half, half),), (half,))
    assert found == ParsedMessage(whole, whole, ((whole, whole),), (whole,))
    json.dumps(found.message("call"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "calls"),
    [
        ("", None, "", ()),
        ("hi\n", None, "hi\n", ()),
        ("\n hi", None, "\n hi", ()),
        ("<think>\nhm\n</think>\n\nhi", "hm", "hi", ()),
        ("<think></think>hi", None, "hi", ()),
        ("\n<think>hm</think>", "hm", "", ()),
        ("<think>hm", "hm", "", ()),
        ("hm</think>hi", "hm", "hi", ()),
        ("hi <think>hm</think>", None, "hi <think>hm</think>", ()),
        ("<think>a</think>b</think>c", "a", "b</think>c", ()),
        ("<think>a<think>b</think>c", "a<think>b", "c", ()),
        ("<think>\n<think>\nhm</think>hi", "hm", "hi", ()),
        (f"<tool_call>\n{F}\n</tool_call>", None, "", (WELL,)),
        (f"So:\n<tool_call>{F}</tool_call>", None, "So:", (WELL,)),
        (f"<tool_call>{F}</tool_call>\n<tool_call>{F}</tool_call>", None, "", (WELL, WELL)),
        (
            f"a\n<tool_call>{F}</tool_call>\nb\n<tool_call>{F}</tool_call>\nc\n",
            None,
            "a\nb\nc\n",
            (WELL, WELL),
        ),
        (f"<think>hm</think>\n<tool_call>{F}</tool_call>", "hm", "", (WELL,)),
        (f"<think>{CALL}{F}{CALLED}</think>hi", f"{CALL}{F}{CALLED}", "hi", ()),
        (f"<think>So\n<tool_call>{F}</tool_call>\nhi", "So", "hi", (WELL,)),
        (f"<think><tool_call>{F}</tool_call>", None, "", (WELL,)),
        ("<think>So <tool_call>no</tool_call>", "So <tool_call>no</tool_call>", "", ()),
        (f" \n<tool_call>{F}</tool_call> \n", None, "", (WELL,)),
        (f"<think>hm</think>\n \n<tool_call>{F}</tool_call>", "hm", "", (WELL,)),
        (f"<tool_call>{F}", None, "", (WELL,)),
        (f"<tool_call>{F} and", None, f"<tool_call>{F} and", ()),
        (f"<tool_call><tool_call>{F}</tool_call>", None, "<tool_call>", (WELL,)),
        (f"</tool_call>{F}</tool_call>", None, f"</tool_call>{F}</tool_call>", ()),
        ("<tool_call></tool_call>", None, "<tool_call></tool_call>", ()),
        (f"<tool_call>no</tool_call><tool_call>{F}</tool_call>", None, "<tool_call>no</tool_call>", (WELL,)),
    ],
)
def test_a_text_is_taken_apart(
    text: str, reasoning: str | None, content: str, calls: tuple[tuple[str, str], ...]
) -> None:
    assert taken(text) == ParsedMessage(reasoning, content, calls)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("hm\n</think>\n\nhi", "hm", "hi"),
        ("hm", "hm", ""),
        ("", None, ""),
        ("<think>hm</think>", "hm", ""),
    ],
)
def test_a_thought_may_begin_in_the_prompt(text: str, reasoning: str | None, content: str) -> None:
    assert taken(text, thinking=True) == ParsedMessage(reasoning, content)


@pytest.mark.parametrize(
    "body",
    [
        "no",
        "[]",
        "{}",
        '"f"',
        "null",
        '{"name": "f"}',
        '{"arguments": {}}',
        '{"name": 1, "arguments": {}}',
        '{"name": "f", "arguments": {}',
        '{"name": "f", "arguments": {},}',
        '{"name": "f", "arguments": {}} {}',
        '{"name": "f", "name": "g", "arguments": {}}',
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": {"a": -Infinity}}',
        "{'name': 'f', 'arguments': {}}",
        '{"name": "f", "arguments": ' + '{"a": ' * 100_000,
    ],
)
def test_a_malformed_call_stays_in_the_content(body: str) -> None:
    text = f"<tool_call>{body}</tool_call>"
    assert taken(text) == ParsedMessage(None, text)


@pytest.mark.parametrize(
    "arguments",
    [
        "{}",
        "{ }",
        '{"a":1.0}',
        '{"a" : "\\u00e9"}',
        '{"a": {"b": [1,  2]}}',
        '{"}": "{\\"", "a": 1}',
        '{"a":1,"a":2}',
        '"{}"',
        "[1, {}]",
        "null",
        "3",
    ],
)
@pytest.mark.parametrize("before", ["", '"id": [{}, "}"], '])
def test_arguments_stay_as_they_were_sampled(arguments: str, before: str) -> None:
    for body in (
        f'{{{before}"name": "f", "arguments":{arguments}}}',
        f'{{ "arguments" : {arguments} , {before}"name" : "f" }}',
    ):
        assert taken(f"<tool_call>\n{body}\n</tool_call>").calls == (("f", arguments),)


def test_a_message_never_has_null_content() -> None:
    message = taken(f"<think>hm</think><tool_call>{F}</tool_call><tool_call>{F}</tool_call>").message("k")
    function = {"name": "f", "arguments": '{"a": 1}'}
    assert message == {
        "role": "assistant",
        "content": "",
        "reasoning": "hm",
        "tool_calls": [
            {"id": one, "type": "function", "function": function} for one in ("nem76rx4a", "btnabiwia")
        ],
    }
    assert taken("hi").message("k") == {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize(
    ("prompt", "thinking"),
    [([], False), ([90], True), ([1, 90, 10], True), ([90, 1], False), ([10], False), ([90, 10, 10], False)],
)
def test_a_prompt_may_end_in_a_thought(prompt: list[int], thinking: bool) -> None:
    assert KNOWN.thinking(prompt) is thinking
    assert not Tags().thinking(prompt)


# Sampled tags against those spelled out.

PIECES = st.one_of(
    st.sampled_from([*TAGS]).map(lambda tag: (tag, True)),
    st.sampled_from([*TAGS, "a", "<", "tool_call>", "\n", "é"]).map(lambda text: (text, False)),
)
Pieces = Sequence[tuple[str, bool]]


def sampled(pieces: Pieces) -> tuple[str, list[int]]:
    """Return the text and the ids of pieces: a tag's own id, or its letters'."""
    ids = [IDS[text] if own else ord(letter) for text, own in pieces for letter in (text if not own else "x")]
    return "".join(text for text, _ in pieces), ids


@given(st.lists(PIECES, max_size=12))
def test_exactly_the_sampled_tags_count(pieces: Pieces) -> None:
    """However many of the same tags are spelled out around them."""
    text, ids = sampled(pieces)
    runs = ["".join(map(chr, run)) for run in KNOWN.runs(ids)]
    marks = KNOWN.marks(text, [KNOWN.count(run) for run in runs])
    places, place = [], 0
    for piece, own in pieces:
        if own:
            places.append((piece, place, place + len(piece)))
        place += len(piece)
    assert [(mark.tag, mark.start, mark.stop) for mark in marks] == places


@given(st.lists(PIECES, max_size=12))
def test_a_plain_text_needs_no_questions(pieces: Pieces) -> None:
    text, ids = sampled([(piece, own or piece in IDS) for piece, own in pieces])
    if len(list(ANY_TAG.finditer(text))) == len(KNOWN.sampled(ids)):  # pieces may spell a tag between them
        assert KNOWN.plain(text, ids)
        assert KNOWN.marks(text) == Tags().marks(text)


def test_a_tag_without_a_token_counts_where_it_is_spelled() -> None:
    some = Tags({THINK: 90})
    text = f"{CALL}{F}{CALLED}{THINK}"
    assert [mark.tag for mark in some.marks(text, [1])] == [CALL, CALLED]
    assert some.count(text) == 1


@given(st.text(st.sampled_from('<>/{}"\\:,abnaemrgutshikol_ \n1'), max_size=60), st.booleans(), st.booleans())
def test_no_text_is_an_error_and_none_is_lost_without_tags(text: str, thinking: bool, tools: bool) -> None:
    parsed = parse(text, Tags().marks(text), thinking=thinking, tools=tools)
    if not ANY_TAG.search(text) and not thinking:
        assert parsed == ParsedMessage(None, text)


WORDS = st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"]), min_size=1, max_size=8)
PLAIN = WORDS.filter(lambda text: text == text.strip("\n"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda part: st.lists(part) | st.dictionaries(WORDS, part),
)


@pytest.mark.whole
@given(
    st.none() | PLAIN,
    st.just("") | PLAIN,
    st.lists(st.tuples(WORDS, st.dictionaries(WORDS, VALUES, max_size=3).map(json.dumps)), max_size=3),
)
def test_what_a_template_writes_is_read_back(
    reasoning: str | None, content: str, calls: list[tuple[str, str]]
) -> None:
    """Reasoning, content and calls, with the line breaks that templates put between them."""
    text = f"{THINK}\n{reasoning}\n{THOUGHT}\n\n" if reasoning else ""
    text += content
    for place, (name, arguments) in enumerate(calls):
        text += "\n" if content or place else ""
        text += f'{CALL}\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n{CALLED}'
    said = content if content.strip() or not calls else ""
    assert taken(text) == ParsedMessage(reasoning, said, tuple(calls))
