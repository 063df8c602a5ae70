"""What a request asks for is the same from every dialect."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_core import InputError, render_key
from tito_io.client.sampling import parse_sampling
from tito_io.dialects import Anthropic, Chat, Dialect, ParsedRequest, Responses, UntranslatableError
from tito_io.engines.constraint import Constraint

from .dialect_turns import HELLO, TOOL

CHAT, ANTHROPIC, RESPONSES = Chat(), Anthropic(), Responses()
DIALECTS: tuple[Dialect, ...] = (CHAT, ANTHROPIC, RESPONSES)
FUNCTION = TOOL["function"]


def chat(**fields: Any) -> ParsedRequest:
    return CHAT.parse({"messages": [HELLO], "model": "m", **fields})


def anthropic(*messages: Any, **fields: Any) -> ParsedRequest:
    return ANTHROPIC.parse({"messages": list(messages) or [HELLO], "max_tokens": 9, "model": "m", **fields})


def responses(*items: Any, **fields: Any) -> ParsedRequest:
    return RESPONSES.parse({"input": list(items) or "hi", "model": "m", **fields})


TEXTS = st.text(max_size=3) | st.none() | st.lists(st.text(max_size=2), max_size=2)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(("user", "assistant", "tool"))},
        optional={"content": TEXTS, "name": st.text(max_size=1)},
    ),
    min_size=1,
    max_size=5,
)


@given(messages=MESSAGES, earlier=MESSAGES, shared=st.integers(0, 5))
def test_what_is_known_of_earlier_requests_changes_nothing(
    messages: list[Any], earlier: list[Any], shared: int
) -> None:
    known = (*messages[:shared], *earlier[shared:])
    body = {"messages": messages, "model": "m"}
    continued, found = CHAT.parse(body, known), CHAT.parse(body)
    assert attrs.evolve(continued, ignored=()) == attrs.evolve(found, ignored=())
    assert {*continued.ignored} <= {*found.ignored}  # what the known ones have was counted with them


def test_errors_count_messages_that_were_known() -> None:
    body = {"messages": [HELLO, HELLO, {"role": "function", "content": "1"}]}
    with pytest.raises(UntranslatableError, match=r"messages\[2\]: is in the old form"):
        CHAT.parse(body, (HELLO, HELLO))
    with pytest.raises(InputError, match=r"messages\[1\].role: is missing"):
        CHAT.parse({"messages": [HELLO, {"content": "a"}]}, (HELLO,))


def test_sampling_is_understood_from_every_dialect() -> None:
    plain: dict[str, Any] = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 7}
    found = [
        parse_sampling(one.sampling)
        for one in (
            chat(max_completion_tokens=9, stop=["END"], **plain),
            anthropic(stop_sequences=["END"], **plain),
            responses(max_output_tokens=9, **plain),
        )
    ]
    assert {one.sampling.max_tokens for one in found} == {9}
    assert all(one.sampling.extra == {"top_k": 3, "top_p": 0.9} for one in found)
    assert [one.sampling.stop for one in found] == [("END",), ("END",), ()]


def test_forced_calls_are_the_same_from_every_dialect() -> None:
    schema: Any = {"name": "look", "input_schema": {"type": "object"}}
    function: Any = {"type": "function", **FUNCTION}
    any_of = [
        chat(tools=[TOOL], tool_choice="required", parallel_tool_calls=False),
        anthropic(tools=[schema], tool_choice={"type": "any", "disable_parallel_tool_use": True}),
        responses(tools=[function], tool_choice="required", parallel_tool_calls=False),
    ]
    named = [
        chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "look"}}),
        anthropic(tools=[schema], tool_choice={"type": "tool", "name": "look"}),
        responses(tools=[function], tool_choice={"type": "function", "name": "look"}),
    ]
    for asked in any_of:
        assert parse_sampling(asked.sampling).sampling.constraint == Constraint(must_call=(), one_call=True)
    for asked in named:
        assert parse_sampling(asked.sampling).sampling.constraint == Constraint(must_call=("look",))


def test_schemas_are_the_same_from_every_dialect() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    named = {"type": "json_schema", "name": "title", "schema": schema, "strict": True}
    found = [
        chat(response_format={"type": "json_schema", "json_schema": {"name": "title", "schema": schema}}),
        anthropic(output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}}),
        responses(text={"format": named}),
    ]
    for asked in found:
        assert parse_sampling(asked.sampling).sampling.constraint == Constraint(schema=schema)
    for asked in (
        chat(response_format={"type": "json_object"}),
        responses(text={"format": {"type": "json_object"}}),
    ):
        assert parse_sampling(asked.sampling).sampling.constraint == Constraint(schema={"type": "object"})


def test_what_is_free_already_constrains_nothing() -> None:
    free = [
        chat(tools=[TOOL], tool_choice="auto", parallel_tool_calls=True, response_format={"type": "text"}),
        anthropic(tool_choice={"type": "auto", "disable_parallel_tool_use": False}),
        responses(tool_choice="auto", parallel_tool_calls=True, text={"format": {"type": "text"}}),
    ]
    assert [parse_sampling(asked.sampling).sampling.constraint for asked in free] == [None] * 3


def test_tools_are_the_same_from_every_dialect() -> None:
    schema = {
        "name": "look",
        "description": "Look it up",
        "input_schema": {"type": "object"},
        "strict": False,
    }
    found = [
        chat(tools=[TOOL]).tools,
        anthropic(tools=[{**schema, "cache_control": {"type": "ephemeral"}}]).tools,
        responses(tools=[{"type": "function", **FUNCTION, "strict": None}]).tools,
    ]
    assert len({render_key(tools, {}) for tools in found}) == 1
    assert (
        responses(tools=[{"type": "function", **FUNCTION, "strict": True}]).tools[0]["function"]["strict"]
        is True
    )


def test_a_count_needs_no_length() -> None:
    asked = ANTHROPIC.parse_count({"messages": [HELLO], "model": "m"})
    assert (asked.messages, asked.sampling, ANTHROPIC.count_body(7)) == ((HELLO,), {}, {"input_tokens": 7})


def test_what_has_no_effect_is_listed() -> None:
    assert chat(user="u", store=True).ignored == ("store", "user")
    told = Chat(ignoring=frozenset(("verbosity", "parallel_tool_calls")))
    body = {"messages": [HELLO], "verbosity": "low", "parallel_tool_calls": False, "user": None}
    assert told.parse(body).ignored == ("parallel_tool_calls", "verbosity")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
@pytest.mark.parametrize("body", [None, [1], "x", 7])
def test_a_body_is_an_object(dialect: Dialect, body: object) -> None:
    with pytest.raises(UntranslatableError, match=r"body: is .*; send a JSON object"):
        dialect.parse(body)
