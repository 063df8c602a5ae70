"""What requests ask for, and what of them is refused by name."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_core import InputError, render_key
from tito_io.client.sampling import parse_sampling
from tito_io.dialects import Anthropic, Chat, Dialect, ParsedRequest, Responses, UntranslatableError
from tito_io.engines.constraint import Constraint

from .dialect_turns import HELLO, TOOL

CHAT, ANTHROPIC, RESPONSES = Chat(), Anthropic(), Responses()
STRICT_CHAT, STRICT_ANTHROPIC = Chat(strict=True), Anthropic(strict=True)
STRICT_RESPONSES = Responses(strict=True)
DIALECTS: tuple[Dialect, ...] = (CHAT, ANTHROPIC, RESPONSES)
FUNCTION = TOOL["function"]
ALLOWED_AT = "tool_choice.allowed_tools."
PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def chat(**fields: Any) -> ParsedRequest:
    return CHAT.parse({"messages": [HELLO], "model": "m", **fields})


def some_functions(*functions: Any, mode: str = "auto") -> dict[str, Any]:
    """Return a choice of some functions, in the form of the chat API."""
    tools = [{"type": "function", "function": one} for one in functions]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def anthropic(*messages: Any, **fields: Any) -> ParsedRequest:
    return ANTHROPIC.parse({"messages": list(messages) or [HELLO], "max_tokens": 9, "model": "m", **fields})


def responses(*items: Any, **fields: Any) -> ParsedRequest:
    return RESPONSES.parse({"input": list(items) or "hi", "model": "m", **fields})


def test_chat_passes_messages_and_tools_as_they_are() -> None:
    image = {"role": "user", "content": [*PARTS, IMAGE]}
    asked = CHAT.parse({"messages": [HELLO, image], "tools": [TOOL], "stream": True})
    assert (asked.messages, asked.tools, asked.stream) == ((HELLO, image), (TOOL,), True)


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
    assert CHAT.parse(body, known) == CHAT.parse(body)


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


def test_wishes_to_think_are_template_arguments() -> None:
    found = [
        chat(reasoning_effort="low", chat_template_kwargs={"a": 1}),
        anthropic(thinking={"type": "enabled", "budget_tokens": 1024}, output_config={"effort": "low"}),
        anthropic(thinking={"type": "disabled"}),
        anthropic(thinking={"type": "adaptive"}),
        responses(reasoning={"effort": "low", "summary": "auto"}),
    ]
    assert [one.sampling.get("chat_template_kwargs") for one in found] == [
        {"reasoning_effort": "low", "a": 1},
        {"enable_thinking": True, "thinking_budget": 1024, "reasoning_effort": "low"},
        {"enable_thinking": False},
        None,
        {"reasoning_effort": "low"},
    ]
    assert found[-1].ignored == ("reasoning.summary",)


def test_where_calls_are_forbidden_there_are_no_tools() -> None:
    schema = {"name": "look", "input_schema": {"type": "object"}}
    assert chat(tools=[TOOL], tool_choice="none").tools == ()
    assert anthropic(tools=[schema], tool_choice={"type": "none"}).tools == ()
    assert responses(tools=[{"type": "function", **FUNCTION}], tool_choice="none").tools == ()


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


def test_blocks_become_messages() -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=2;"},
        {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
    ]
    said = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "So"},
        {"type": "tool_use", "id": "a", "name": "look", "input": {"x": 1}},
        {"type": "tool_use", "id": "b", "name": "look", "input": {}},
    ]
    results = [
        {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": [{"type": "text", "text": "gone"}],
            "is_error": True,
        },
        {"type": "tool_result", "tool_use_id": "b"},
        {"type": "text", "text": "and?"},
    ]
    asked = anthropic(
        HELLO, {"role": "assistant", "content": said}, {"role": "user", "content": results}, system=system
    )
    calls = [
        {"id": key, "type": "function", "function": {"name": "look", "arguments": arguments}}
        for key, arguments in (("a", '{"x": 1}'), ("b", "{}"))
    ]
    assert asked.messages == (
        {"role": "system", "content": "Be kind."},
        HELLO,
        {"role": "assistant", "content": "So", "reasoning": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "Error: gone"},
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "user", "content": "and?"},
    )
    assert asked.ignored == ("cache_control",)


def test_a_tool_that_is_loaded_later_is_defined_where_it_is_found() -> None:
    def tool(name: str, **fields: Any) -> dict[str, Any]:
        return {"name": name, "input_schema": {"type": "object"}, **fields}

    found = {"type": "tool_reference", "tool_name": "edit"}
    block = {"type": "tool_result", "tool_use_id": "a", "content": [found]}
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "search", "input": {}}]}
    before = anthropic(HELLO, use, tools=[tool("search")])
    after = anthropic(
        HELLO,
        use,
        {"role": "user", "content": [block]},
        tools=[tool("search"), tool("edit", defer_loading=True), tool("other", defer_loading=True)],
    )
    assert after.tools == before.tools
    assert after.messages[:2] == before.messages
    edit = {"name": "edit", "parameters": {"type": "object"}}
    assert orjson.loads(after.messages[2]["content"]) == {"type": "function", "function": edit}


def test_several_texts_stay_several() -> None:
    texts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert anthropic({"role": "user", "content": PARTS}).messages[0]["content"] == PARTS
    assert anthropic(HELLO, system=PARTS).messages[0]["content"] == PARTS
    assert responses({"role": "user", "content": texts}).messages[0]["content"] == PARTS
    result = {"type": "tool_result", "tool_use_id": "a", "content": PARTS, "is_error": True}
    marked = anthropic({"role": "user", "content": [result]}).messages[0]["content"]
    assert marked == [{"type": "text", "text": "Error: "}, *PARTS]


def test_images_stay_images() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    block = {"type": "image", "source": source}
    item = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
    assert anthropic({"role": "user", "content": [block]}).messages[0]["content"] == [IMAGE]
    linked = {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [linked]}
    found = anthropic({"role": "user", "content": [result]}).messages[0]["content"]
    assert found == [{"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}]
    detailed = {**IMAGE, "image_url": {**IMAGE["image_url"], "detail": "low"}}  # type: ignore[dict-item]  # a mapping
    assert responses({"role": "user", "content": [item]}).messages[0]["content"] == [detailed]


def test_items_become_messages() -> None:
    asked = responses(
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {
            "type": "reasoning",
            "id": "r",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
        },
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"x": '},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "no"}]},
        instructions="Be kind.",
        previous_response_id="resp_0",
        metadata={"k": "v"},
    )
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": '}}
    assert asked.messages == (
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": "Be brief."},
        HELLO,
        {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "no"},
    )
    assert (asked.instructed, asked.previous_response_id, asked.metadata) == (True, "resp_0", {"k": "v"})


def test_nothing_that_was_said_is_lost_between_items() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    said = [{"role": "assistant", "content": text} for text in ("a", "b")]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    found = responses(thought, *said, call, HELLO, call).messages
    assert [(one["content"], one.get("reasoning"), len(one.get("tool_calls", ()))) for one in found] == [
        ("a", "hm", 0),
        ("b", None, 1),
        ("hi", None, 0),
        ("", None, 1),
    ]


def test_responses_are_stored_unless_told_otherwise() -> None:
    assert [responses().store, responses(store=False).store, chat().store] == [True, False, False]


def test_a_prefilled_answer_is_to_be_continued() -> None:
    prefill = {"role": "assistant", "content": "The best answer is ("}
    assert anthropic(HELLO, prefill).continue_final_message
    assert not anthropic(HELLO, prefill, HELLO).continue_final_message
    assert chat(continue_final_message=True).continue_final_message
    assert chat(continue_final_message=True, add_generation_prompt=False).continue_final_message
    assert not chat(continue_final_message=False, add_generation_prompt=True).continue_final_message


def test_a_count_needs_no_length() -> None:
    asked = ANTHROPIC.parse_count({"messages": [HELLO], "model": "m"})
    assert (asked.messages, asked.sampling, ANTHROPIC.count_body(7)) == ((HELLO,), {}, {"input_tokens": 7})


@pytest.mark.parametrize("message", [{"role": "system"}, {"role": "system", "content": ""}])
def test_anthropic_messages_without_any_text_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(UntranslatableError, match="messages: have no text; send a message of the user"):
        Anthropic().parse({"messages": [message], "max_tokens": 9})


@pytest.mark.parametrize(
    ("mode", "names", "choice"),
    [
        ("auto", "fgh", None),
        ("required", "hgf", "required"),
        ("required", "g", {"type": "function", "function": {"name": "g"}}),
        ("auto", "g", some_functions({"name": "g"})),
        ("required", "hgh", some_functions({"name": "h"}, {"name": "g"}, mode="required")),
    ],
)
def test_some_tools_can_be_allowed_while_all_stay_in_the_prompt(mode: str, names: str, choice: Any) -> None:
    functions = [{"name": name} for name in "fgh"]
    flat = [{"type": "function", "name": name} for name in names]
    hosted = {"type": "web_search"}
    found = [
        chat(
            tools=[{"type": "function", "function": one} for one in functions],
            tool_choice=some_functions(*({"name": name} for name in names), mode=mode),
        ),
        responses(
            tools=[hosted, *({"type": "function", **one} for one in functions)],
            tool_choice={"type": "allowed_tools", "mode": mode, "tools": [*flat, hosted]},
        ),
    ]
    assert [one.sampling.get("tool_choice") for one in found] == [choice, choice]
    assert [len(one.tools) for one in found] == [3, 3]
    assert found[1].ignored == ("tools[type=web_search]",)


def test_a_custom_tool_can_be_allowed() -> None:
    tools = [{"type": "custom", "name": "exec"}, {"type": "function", "name": "f"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": tools[:1]}
    sampling = responses(tools=tools, tool_choice=choice).sampling
    assert sampling["tool_choice"] == {"type": "function", "function": {"name": "exec"}}


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


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "function", "content": "x", "name": "f"}]}, "messages[0]"),
        ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": [{"type": []}]}]}, "messages[0].content[0].type"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice.function.name"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        ({"tool_choice": some_functions()}, "tool_choice.allowed_tools.tools"),
        ({"tool_choice": some_functions(FUNCTION)}, "tool_choice.allowed_tools.tools"),
        ({"tool_choice": some_functions({"description": "x"})}, ALLOWED_AT + "tools[0].function.name"),
        ({"tool_choice": some_functions(FUNCTION, mode="any")}, "tool_choice.allowed_tools.mode"),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": [{"type": "custom"}]},
                }
            },
            "tool_choice.allowed_tools.tools[0].type",
        ),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": {}}, "tools"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "text"}}}},
            "response_format.json_schema.schema.type",
        ),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": False}, "top_logprobs"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"verbosity": "low"}, "verbosity"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "a"}}, "audio"),
        ({"prediction": {"type": "content"}}, "prediction"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "add_generation_prompt"),
        ({"extra_body": {}, "input_ids": [1]}, "input_ids"),
        ({"extra_body": {"top_k": 1}}, "extra_body"),
        ({"chat_template_kwargs": 1, "reasoning_effort": "low"}, "chat_template_kwargs"),
    ],
)
def test_strict_chat_refuses_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(UntranslatableError) as caught:
        STRICT_CHAT.parse({"messages": [HELLO], **fields})
    assert caught.value.field == field


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


KEEP_ALL = {"type": "clear_thinking_20251015", "keep": "all"}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"messages": [HELLO, {"role": "assistant", "content": list(blocks)}, HELLO]}


TEXT = {"type": "text", "text": "a"}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
USE = {"type": "tool_use", "id": "a", "name": "f", "input": {}}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{**HELLO, "name": "x"}]}, "messages[0].name"),
        (user({"type": "document", "source": {}}), "messages[0].content[0].source.content"),
        (user({"type": "search_result"}), "messages[0].content[0].title"),
        (user({"type": "container_upload"}), "messages[0].content[0]"),
        (user({"type": "text"}), "messages[0].content[0].text"),
        (user({**TEXT, "odd": 1}), "messages[0].content[0].odd"),
        (user({**TEXT, "citations": [{"type": "char_location"}]}), "messages[0].content[0].citations"),
        (user(TEXT, RESULT), "messages[0].content[1]"),
        (user(RESULT, {"type": "image", "source": {"type": "file"}}), "messages[0].content[1].source.type"),
        (user({**RESULT, "content": [{"type": "video"}]}), "messages[0].content[0].content[0]"),
        (user({**RESULT, "is_error": "yes"}), "messages[0].content[0].is_error"),
        (
            user({"type": "image", "source": {"type": "file", "file_id": "f"}}),
            "messages[0].content[0].source.type",
        ),
        (assistant({"type": "redacted_thinking", "data": "x"}), "messages[1].content[0]"),
        (assistant({"type": "server_tool_use"}), "messages[1].content[0].id"),
        (assistant(USE, TEXT), "messages[1].content[1]"),
        (assistant(THINKING, TEXT, THINKING), "messages[1].content[2]"),
        (assistant({**USE, "caller": {"type": "code_execution_20250825"}}), "messages[1].content[0].caller"),
        (assistant({**USE, "input": "x"}), "messages[1].content[0].input"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f", "input_schema": {}, "input_examples": [1]}]}, "tools[0].input_examples"),
        ({"tool_choice": {"type": "any"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
        (
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}},
            "tool_choice.disable_parallel_tool_use",
        ),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type"),
        ({"context_management": {"edits": [1]}}, "context_management.edits[0]"),
        ({"context_management": {"edits": [KEEP_ALL]}}, "context_management"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"thread": {"type": "create"}}, "thread"),
        ({"n": 2}, "n"),
    ],
)
def test_strict_anthropic_refuses_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(UntranslatableError) as caught:
        STRICT_ANTHROPIC.parse({"messages": [HELLO], "max_tokens": 9, **fields})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0].type",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0].file_id",
        ),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "f"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        (
            {"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}]},
            "input[0].summary",
        ),
        ({"input": [{"type": "reasoning", "encrypted_content": "gAAA"}]}, "input[0].encrypted_content"),
        ({"input": [{"type": "reasoning", "encrypted_content": "tito:?"}]}, "input[0].encrypted_content"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]},
            "tools[0].tools[0].type",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.mode"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice.tools"),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}},
            "tool_choice.tools[0].type",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}]}},
            "tool_choice.tools",
        ),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"include": ["message.output_text.logprobs"]}, "include[0]"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"store": "no"}, "store"),
        ({"max_tokens": 9}, "max_tokens"),
    ],
)
def test_strict_responses_refuse_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(UntranslatableError) as caught:
        STRICT_RESPONSES.parse({"input": "hi", **fields})
    assert caught.value.field == field


@pytest.mark.parametrize("given", [{"a": 1}, [7], [{"content": "no role"}]])
def test_messages_are_messages(given: Any) -> None:
    with pytest.raises(InputError, match="messages"):
        CHAT.parse({"messages": given})
