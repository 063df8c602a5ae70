"""Messages of ATIF steps: what another program wrote has the usual names."""

from __future__ import annotations

from typing import Any

import pytest

from tito_io.samples.forms.atif_messages import append_message, message_step, step_messages


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        ({}, "reasoning_content"),
        ({"extra": {"tito": {}}}, "reasoning_content"),
        ({"extra": {"tito": {"reasoning": "content"}}}, "reasoning_content"),
        ({"extra": {"tito": {"reasoning": "reasoning"}}}, "reasoning"),
    ],
)
def test_reasoning_has_the_name_that_it_had_or_the_usual_one(extra: dict[str, Any], name: str) -> None:
    step = {"source": "agent", "message": "yes", "reasoning_content": "hm", **extra}
    assert list(step_messages(step)) == [{"role": "assistant", "content": "yes", name: "hm"}]


def test_a_step_without_reasoning_has_none() -> None:
    step = {"source": "user", "message": "yes", "reasoning_content": None}
    assert list(step_messages(step)) == [{"role": "user", "content": "yes"}]


@pytest.mark.parametrize(
    ("name", "extra"),
    [("reasoning_content", {}), ("reasoning", {"extra": {"tito": {"reasoning": "reasoning"}}})],
)
def test_only_an_unusual_name_of_reasoning_is_written(name: str, extra: dict[str, Any]) -> None:
    steps: list[dict[str, Any]] = []
    append_message(steps, {"role": "assistant", "content": "yes", name: "hm"})
    step = {"step_id": 1, "source": "agent", "message": "yes", "reasoning_content": "hm", **extra}
    assert steps == [step]


@pytest.mark.parametrize(
    ("call", "arguments", "marked"),
    [
        ({"function": {"name": "f", "arguments": '{"a": 1}'}}, {"a": 1}, False),
        ({"function": {"name": "f", "arguments": '{"a":1}'}}, {"a": 1}, True),
        ({"function": {"name": "f", "arguments": {"a": 1}}}, {"a": 1}, True),
        ({"function": {"name": "f", "arguments": "no"}}, {}, True),
        ({"function": {"name": "f", "arguments": "[1]"}}, {}, True),
        ({"function": {"name": "f", "arguments": "{}"}, "index": 0}, {}, True),
    ],
)
def test_a_tool_call_is_written_with_what_a_step_has_no_place_for(
    call: dict[str, Any], arguments: dict[str, Any], marked: bool
) -> None:
    whole = {"id": "c1", "type": "function", **call}
    message = {"role": "assistant", "content": "", "tool_calls": [whole]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    steps: list[dict[str, Any]] = []
    for one in ({"role": "user", "content": "go"}, message, result):
        append_message(steps, one)
    extra = {"extra": {"tito": {"call": whole}}} if marked else {}
    assert steps[1:] == [
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "f", "arguments": arguments, **extra}],
            "observation": {"results": [{"source_call_id": "c1", "content": "done"}]},
        }
    ]
    assert list(step_messages(steps[1])) == [message, result]


def test_a_result_that_no_agent_s_step_precedes_is_a_step() -> None:
    steps: list[dict[str, Any]] = []
    message = {"role": "tool", "tool_call_id": "c9", "content": "done"}
    for one in ({"role": "user", "content": "go"}, message):
        append_message(steps, one)
    assert [step["source"] for step in steps] == ["user", "user"]
    assert list(step_messages(steps[1])) == [message]


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ("a", "a"),
        (None, ""),
        (7, ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], None),
        ([{"type": "text", "text": "a", "x": 1}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "b"}], "b"),
        ([], ""),
    ],
)
def test_a_step_has_the_text_of_a_message_and_the_rest_comes_back(content: Any, written: str | None) -> None:
    message = {"role": "user", "content": content}
    step = message_step(message, 1)
    assert step["message"] == (content if written is None else written)
    assert list(step_messages(step)) == [message]


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "function": {"arguments": "{}"}},
        {"function": {"name": "f", "arguments": "{}"}},
        {"id": 7, "function": {"name": "f"}},
        "odd",
    ],
)
def test_a_call_without_an_id_or_a_name_is_no_tool_call_of_a_step(call: Any) -> None:
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    step = message_step(message, 1)
    assert "tool_calls" not in step
    assert list(step_messages(step)) == [message]


@pytest.mark.parametrize("empty", [{}, {"content": None}, {"content": ""}])
def test_a_result_without_content_is_an_empty_text(empty: dict[str, Any]) -> None:
    results = [{"source_call_id": "c1", **empty}, empty]
    step = {"source": "agent", "observation": {"results": results}}
    assert list(step_messages(step)) == [
        {"role": "assistant", "content": ""},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "user", "content": ""},
    ]
