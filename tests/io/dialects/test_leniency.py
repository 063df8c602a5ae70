"""What agents send is accepted and listed; what would change the samples is refused; strict refuses both."""

from __future__ import annotations

from typing import Any

import pytest

from tito_io.dialects import Anthropic, Chat, Dialect, Google, Responses, UntranslatableError
from tito_io.dialects.chat.request import NAMES
from tito_io.dialects.fields import ENGINE_ARGUMENTS, MOST_NAMES

from .dialect_turns import HELLO, TOOL

CHAT, ANTHROPIC, RESPONSES, GOOGLE = Chat(), Anthropic(), Responses(), Google()
STRICT: dict[str, Dialect] = {
    one.name: one for one in (Chat(strict=True), Anthropic(strict=True), Responses(strict=True))
}
KEEP_ALL = {"type": "clear_thinking_20251015", "keep": "all"}
SCHEMA = {"name": "look", "input_schema": {"type": "object"}}
FUNCTION = {"type": "function", **TOOL["function"]}


def body(dialect: Dialect, **fields: Any) -> dict[str, Any]:
    """Return a whole request with these fields."""
    if dialect.name == "responses":
        return {"input": "hi", **fields}
    if dialect.name == "google":
        return {"contents": [{"parts": [{"text": "hi"}]}], **fields}
    return {"messages": [HELLO], "max_tokens": 9, **fields}


ACCEPTED: tuple[tuple[Dialect, dict[str, Any], list[str]], ...] = (
    (CHAT, {"usage": {"include": True}}, ["usage"]),
    (CHAT, {"thinking": {"budget": 3}}, ["thinking"]),
    (CHAT, {"verbosity": "low"}, ["verbosity"]),
    (
        CHAT,
        {"return_hidden_states": True, "top_logprobs_num": 3},
        ["return_hidden_states", "top_logprobs_num"],
    ),
    (CHAT, {"prediction": {"type": "content"}}, ["prediction"]),
    (CHAT, {"web_search_options": {}}, ["web_search_options"]),
    (CHAT, {"stream_options": {"continuous_usage_stats": True}}, ["stream_options.continuous_usage_stats"]),
    (CHAT, {"stream_options": {"odd": 1}}, ["stream_options.odd"]),
    (CHAT, {"tools": [TOOL, {"type": "custom", "custom": {"name": "f"}}]}, ["tools[type=custom]"]),
    (ANTHROPIC, {"context_management": {"edits": [KEEP_ALL]}}, ["context_management"]),
    (ANTHROPIC, {"thinking": {"type": "adaptive", "display": "omitted"}}, ["thinking.display"]),
    (ANTHROPIC, {"container": "c", "betas": ["b"]}, ["betas", "container"]),
    (ANTHROPIC, {"fallbacks": [{"model": "m"}]}, ["fallbacks"]),
    (ANTHROPIC, {"mcp_servers": [{"url": "u"}]}, ["mcp_servers"]),
    (ANTHROPIC, {"output_config": {"effort": "low", "task_budget": 9}}, ["output_config.task_budget"]),
    (ANTHROPIC, {"tools": [{**SCHEMA, "input_examples": [{}]}]}, ["tools[].input_examples"]),
    (
        ANTHROPIC,
        {"tools": [SCHEMA, {"type": "web_search_20250305", "name": "web_search"}]},
        ["tools[type=web_search_20250305]"],
    ),
    (
        ANTHROPIC,
        {"tools": [SCHEMA, {"type": "bash_20250124", "name": "bash"}]},
        ["tools[type=bash_20250124]"],
    ),
    (ANTHROPIC, {"messages": [{**HELLO, "name": "x"}]}, ["messages[].name"]),
    (RESPONSES, {"client_metadata": {"a": "b"}}, ["client_metadata"]),
    (RESPONSES, {"text": {"verbosity": "low"}}, ["text.verbosity"]),
    (RESPONSES, {"truncation": "auto"}, ["truncation"]),
    (RESPONSES, {"reasoning": {"effort": "low", "context": "all_turns"}}, ["reasoning.context"]),
    (RESPONSES, {"include": ["web_search_call.action.sources"]}, ["include[]"]),
    (RESPONSES, {"tools": [FUNCTION, {"type": "web_search"}]}, ["tools[type=web_search]"]),
    (RESPONSES, {"tools": [{"type": "local_shell"}]}, ["tools[type=local_shell]"]),
    (RESPONSES, {"input": [{**HELLO, "phase": "commentary"}]}, ["input[].phase"]),
)


@pytest.mark.parametrize(("dialect", "fields", "ignored"), ACCEPTED, ids=lambda one: str(one)[:40])
def test_what_has_no_effect_is_accepted_and_listed(
    dialect: Dialect, fields: dict[str, Any], ignored: list[str]
) -> None:
    asked, plain = dialect.parse(body(dialect, **fields)), dialect.parse(body(dialect))
    assert list(asked.ignored) == ignored
    assert asked.sampling.get("max_tokens") == plain.sampling.get("max_tokens")
    assert [one["content"] for one in asked.messages] == ["hi"]
    assert all(one["type"] == "function" for one in asked.tools)


@pytest.mark.parametrize(("dialect", "fields", "ignored"), ACCEPTED, ids=lambda one: str(one)[:40])
def test_strict_refuses_what_has_no_effect(
    dialect: Dialect, fields: dict[str, Any], ignored: list[str]
) -> None:
    with pytest.raises(UntranslatableError) as caught:
        STRICT[dialect.name].parse(body(dialect, **fields))
    assert caught.value.field.startswith(ignored[0].split("[")[0].split(".")[0])


REFUSED: tuple[tuple[Dialect, dict[str, Any], str], ...] = (
    *((one, {"temprature": 0.5}, "did you mean 'temperature'") for one in (CHAT, ANTHROPIC, RESPONSES)),
    *((one, {"chat_template": "x"}, "leave it out") for one in (CHAT, ANTHROPIC, RESPONSES)),
    *((one, {"guided_json": {}}, "leave it out") for one in (CHAT, ANTHROPIC, RESPONSES)),
    (CHAT, {"max_output_tokens": 9}, "another name or place in this API; write max_tokens"),
    *((CHAT, {name: "x"}, "write a message with the role system") for name in ("system", "instructions")),
    (CHAT, {"sytem": "x"}, "did you mean a message with the role system"),
    *((one, {"tool": [TOOL]}, "did you mean 'tools'") for one in (CHAT, ANTHROPIC, RESPONSES)),
    *((one, {"tool_choise": "none"}, "did you mean 'tool_choice'") for one in (CHAT, ANTHROPIC, RESPONSES)),
    (CHAT, {"output_format": {}}, "write response_format"),
    (CHAT, {"messages": ["x"]}, r"^messages\[0\]: is a string"),
    (CHAT, {"messages": [{"content": "x"}]}, r"^messages\[0\].role: is missing"),
    (CHAT, {"messages": [{"role": "user", "content": 3}]}, r"^messages\[0\].content: is a number"),
    (CHAT, {"messages": [{"role": "user", "contents": "x"}]}, r"^messages\[0\].contents: .*'content'"),
    (ANTHROPIC, {"instructions": "x"}, "write system"),
    (ANTHROPIC, {"sytem": "x"}, "did you mean 'system'"),
    (ANTHROPIC, {"system": 3}, "system: is a number; give a string or a list"),
    (ANTHROPIC, {"messages": [{"role": "user", "content": 3}]}, "content: is a number"),
    (ANTHROPIC, {"output_format": {}}, "write output_config.format"),
    (CHAT, {"audio": {"voice": "a"}}, "ask for text"),
    (CHAT, {"functions": [{"name": "f"}]}, "old form of function calls"),
    (CHAT, {"messages": [HELLO, {"role": "function", "name": "f", "content": "x"}]}, "old form"),
    (ANTHROPIC, {"n": 2}, "leave it out"),
    (ANTHROPIC, {"stop": "x"}, "write stop_sequences"),
    (
        ANTHROPIC,
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        "nothing is cleared",
    ),
    (ANTHROPIC, {"context_management": {"edits": [{**KEEP_ALL, "keep": None}]}}, "clear reasoning"),
    (ANTHROPIC, {"thinking": {"type": "between"}}, "enabled, disabled or adaptive"),
    (RESPONSES, {"max_tokens": 9}, "write max_output_tokens"),
    (RESPONSES, {"system": "x"}, "write instructions"),
    (RESPONSES, {"instruction": "x"}, "did you mean 'instructions'"),
    (RESPONSES, {"input": 3}, "input: is a number; give a string or a list"),
    (RESPONSES, {"output_format": {}}, "write text.format"),
    (GOOGLE, {"instructions": "x"}, "write systemInstruction"),
    (GOOGLE, {"max_tokens": 9}, "^max_tokens: .*write generationConfig.maxOutputTokens"),
    (
        GOOGLE,
        {"generation_config": {"max_output_tokens": "x"}},
        "^generation_config.max_output_tokens: is 'x'; give a whole number",
    ),
    (RESPONSES, {"background": True}, "wait for the answer"),
    (RESPONSES, {"conversation": "c"}, "previous_response_id"),
    (RESPONSES, {"prompt": {"id": "p"}}, "no prompts are stored"),
    (RESPONSES, {"context_management": [{"type": "compaction"}]}, "nothing is cut or cleared"),
    (RESPONSES, {"include": ["message.output_text.logprobs"]}, "chat completions"),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "single items are not kept"),
    (RESPONSES, {"input": [{"type": "compaction", "encrypted_content": "gAAA"}]}, "not written here"),
    (RESPONSES, {"input": [{"type": "compaction", "encrypted_content": "tito:?"}]}, "not written here"),
    (RESPONSES, {"input": [{"type": "hologram"}]}, "cannot be translated"),
)


@pytest.mark.parametrize(("dialect", "fields", "words"), REFUSED, ids=lambda one: str(one)[:40])
def test_what_would_change_the_samples_is_refused(
    dialect: Dialect, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(UntranslatableError, match=words):
        dialect.parse(body(dialect, **fields))


def test_named_fields_are_accepted_even_where_they_would_be_refused() -> None:
    dialect = Responses(ignoring=frozenset(("prompt", "temprature")), strict=True)
    asked = dialect.parse({"input": "hi", "prompt": {"id": "p"}, "temprature": 1})
    assert asked.ignored == ("prompt", "temprature")
    assert asked.sampling == {}


@pytest.mark.parametrize("name", sorted(name for name in ENGINE_ARGUMENTS if len(name) > 4))
def test_a_sampling_argument_with_a_letter_wrong_is_refused(name: str) -> None:
    for at in range(len(name) - 1):
        without, twice = name[:at] + name[at + 1 :], name[: at + 1] + name[at:]
        swapped = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
        for wrong in {without, twice, swapped} - ENGINE_ARGUMENTS:
            with pytest.raises(UntranslatableError, match=f"^{wrong}: .*(did you mean|leave it out)"):
                CHAT.parse(body(CHAT, **{wrong: 1}))


@pytest.mark.parametrize(("dialect", "fields", "ignored"), ACCEPTED, ids=lambda one: str(one)[:40])
def test_a_strict_reading_accepts_what_is_named(
    dialect: Dialect, fields: dict[str, Any], ignored: list[str]
) -> None:
    kinds: dict[str, Any] = {"chat": Chat, "anthropic": Anthropic, "responses": Responses}
    lenient = kinds[dialect.name](ignoring=frozenset(ignored), strict=True)
    assert list(lenient.parse(body(dialect, **fields)).ignored) == ignored


def test_a_request_can_list_only_so_many_names() -> None:
    many = {f"odd_{place}": 1 for place in range(10 * MOST_NAMES)}
    asked = RESPONSES.parse({"input": [{**HELLO, **many}]})
    assert len(asked.ignored) == MOST_NAMES


@pytest.mark.parametrize("dialect", [CHAT, ANTHROPIC, RESPONSES], ids=lambda one: one.name)
def test_a_body_can_have_only_so_many_unknown_fields(dialect: Dialect) -> None:
    """Each is compared with all sampling arguments, which must not take minutes."""
    many = {f"odd_{place}": 1 for place in range(MOST_NAMES)}
    assert len(dialect.parse(body(dialect, **many)).ignored) == MOST_NAMES
    with pytest.raises(UntranslatableError, match="body: has 65 fields that are not known"):
        dialect.parse(body(dialect, **many, more=1))


def test_long_names_are_not_compared_and_kept() -> None:
    assert NAMES.unhonoured("temperature" * 9) is None
    assert NAMES.unhonoured("temperature_") is not None


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"thinking": {"type": "enabled"}}, {"enable_thinking": True}),
        ({"thinking": {"type": "disabled"}, "enable_thinking": True}, {"enable_thinking": False}),
        ({"thinking": {"type": "adaptive"}}, {}),
        ({"enable_thinking": False}, {"enable_thinking": False}),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, {"reasoning_effort": "high"}),
    ],
)
def test_wishes_for_reasoning_in_a_chat_are_template_arguments(
    fields: dict[str, Any], wanted: dict[str, Any]
) -> None:
    asked = CHAT.parse(body(CHAT, **fields))
    assert asked.sampling.get("chat_template_kwargs", {}) == wanted
    assert asked.ignored == ()


# History that was written elsewhere.

TEXT = {"type": "text", "text": "a"}
USE = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}


def roles(*messages: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    asked = ANTHROPIC.parse({"messages": [HELLO, *messages, HELLO], "max_tokens": 9})
    return [
        (one["role"], one["content"], len(one.get("tool_calls", ()))) for one in list(asked.messages)[1:-1]
    ]


def thinking(text: str) -> dict[str, str]:
    return {"type": "thinking", "thinking": text, "signature": "s"}


def said(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def test_text_and_calls_in_any_order_are_one_message() -> None:
    result = {"role": "user", "content": [TEXT, RESULT]}
    assert roles(said(USE, TEXT), result) == [("assistant", "a", 1), ("tool", "x", 0), ("user", "a", 0)]


def test_several_thoughts_are_one_reasoning_and_unreadable_ones_are_left_out() -> None:
    blocks = said(thinking("hm"), {"type": "redacted_thinking", "data": "x"}, TEXT, thinking("so"))
    asked = ANTHROPIC.parse({"messages": [HELLO, blocks, HELLO], "max_tokens": 9})
    assert asked.messages[1] == {"role": "assistant", "content": "a", "reasoning": "hm\nso"}
    names = ("messages[].content[type=redacted_thinking]", "order[type=thinking]")
    assert asked.ignored == names


def test_tools_that_a_server_ran_are_calls_and_tool_messages() -> None:
    call = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": "t"}]}
    assert roles(said(TEXT, call, result, {**TEXT, "text": "b"})) == [
        ("assistant", "a", 1),
        ("tool", '[{"title": "t"}]', 0),
        ("assistant", "b", 0),
    ]


def test_the_error_of_a_servers_tool_is_told_from_its_answer() -> None:
    call = {"type": "mcp_tool_use", "id": "s", "name": "f", "input": {}}
    result = {"type": "mcp_tool_result", "tool_use_id": "s", "content": "gone"}
    for failed, text in ((False, "gone"), (True, "Error: gone")):
        assert roles(said(call, {**result, "is_error": failed}))[1] == ("tool", text, 0)


def test_documents_in_plain_text_are_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "body"}
    document = {"type": "document", "title": "t", "source": source}
    found = {"type": "search_result", "title": "t", "source": "u", "content": [TEXT]}
    loaded = {**RESULT, "content": [{"type": "tool_reference", "tool_name": "look"}]}
    (_, parts, _), (_, hits, _), (_, name, _) = roles(
        {"role": "user", "content": [document]},
        {"role": "user", "content": [found]},
        {"role": "user", "content": [loaded]},
    )
    assert [one["text"] for one in parts] == ["t", "body"]
    assert [one["text"] for one in hits] == ["t\nu", "a"]
    assert name == "look"
    with pytest.raises(UntranslatableError, match="files are not read"):
        roles({"role": "user", "content": [{"type": "document", "source": {"type": "base64"}}]})


def items(*found: dict[str, Any]) -> list[Any]:
    return list(RESPONSES.parse({"input": [HELLO, *found, HELLO]}).messages)[1:-1]


@pytest.mark.parametrize(
    ("call", "output"),
    [
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        ),
        (
            {
                "type": "local_shell_call",
                "call_id": "c",
                "action": {"command": ["ls"]},
                "status": "completed",
            },
            {"type": "local_shell_call_output", "id": "c", "output": "ok"},
        ),
        ({"type": "web_search_call", "id": "c", "status": "ok", "action": {"query": "q"}}, None),
        ({"type": "mcp_call", "id": "c", "name": "f", "arguments": "{}", "output": "ok"}, None),
    ],
    ids=lambda one: one and one["type"],
)
def test_calls_of_other_tools_stay_in_the_history(
    call: dict[str, Any], output: dict[str, Any] | None
) -> None:
    message, result = items(call, *([output] if output else []))
    (called,) = message["tool_calls"]
    assert called["function"]["name"] in ("f", "local_shell", "web_search")
    assert (result["role"], result["tool_call_id"], called["id"]) == ("tool", "c", "c")
    assert "ok" in result["content"]


def test_reasoning_that_cannot_be_read_is_its_summary() -> None:
    summary = [{"type": "summary_text", "text": "so"}]
    bare, sealed = {"type": "reasoning", "summary": summary}, {"encrypted_content": "gAAA"}
    assert (
        items(bare) == items({**bare, **sealed}) == [{"role": "assistant", "content": "", "reasoning": "so"}]
    )
    asked = RESPONSES.parse({"input": [HELLO, {"type": "reasoning", "summary": [], **sealed}]})
    assert (asked.messages, asked.ignored) == ((HELLO,), ("input[].encrypted_content",))


def test_calls_of_custom_tools_in_a_chat_are_calls_of_functions() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}
    asked = CHAT.parse({"messages": [HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}]})
    (called,) = asked.messages[1]["tool_calls"]
    assert called["function"] == {"name": "f", "arguments": '{"input": "x"}'}


@pytest.mark.parametrize(
    ("kind", "field"), [("input_text", "text"), ("output_text", "text"), ("refusal",) * 2]
)
def test_texts_of_other_types_in_a_chat_are_texts(kind: str, field: str) -> None:
    """Engines take them for texts; a chat template would leave them out."""
    parts = [TEXT, {"type": kind, field: "b"}]
    asked = CHAT.parse({"messages": [{"role": "user", "content": parts}]})
    assert asked.messages[0]["content"] == [TEXT, {"type": "text", "text": "b"}]
    odd = [{"type": kind, field: 7}]
    assert CHAT.parse({"messages": [{"role": "user", "content": odd}]}).messages[0]["content"] == odd


def test_messages_of_agents_and_refusals_are_messages_and_reports_are_left_out() -> None:
    agent = {"type": "agent_message", "author": "/a", "content": [{"type": "input_text", "text": "hi"}]}
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    report = {"type": "mcp_list_tools", "tools": []}
    asked = RESPONSES.parse({"input": [agent, report, refusal]})
    assert [(one["role"], one["content"]) for one in asked.messages] == [("user", "hi"), ("assistant", "no")]
    assert asked.ignored == ("input[].author", "input[type=mcp_list_tools]")


def test_outputs_that_are_no_text_are_json() -> None:
    call = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
    output = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a"}]}
    assert items(call, output)[1]["content"] == '[{"stdout": "a"}]'


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ({"status": "completed"}, "completed"),
        ({"status": "failed"}, "Error: failed"),
        ({"status": "failed", "output": "gone"}, "Error: gone"),
        ({"status": "completed", "output": "gone"}, "gone"),
    ],
)
def test_outputs_of_other_tools_say_whether_they_failed(output: dict[str, str], content: str) -> None:
    call = {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}}
    result = {"type": "apply_patch_call_output", "call_id": "c", **output}
    assert items(call, result)[1]["content"] == content


@pytest.mark.parametrize("call_id", [None, "c"])
def test_an_output_in_the_item_of_a_call_is_never_lost(call_id: str | None) -> None:
    call = {"type": "mcp_call", "id": "c", "call_id": call_id, "name": "f", "arguments": "{}", "output": "ok"}
    assert items(call)[1] == {"role": "tool", "tool_call_id": "c", "content": '{"output": "ok"}'}


def test_a_document_in_blocks_is_its_blocks() -> None:
    source = {"type": "content", "content": [TEXT, TEXT]}
    ((_, parts, _),) = roles({"role": "user", "content": [{"type": "document", "source": source}]})
    assert [one["text"] for one in parts] == ["a", "a"]
    whole = {"type": "content", "content": "a"}
    assert roles({"role": "user", "content": [{"type": "document", "source": whole}]}) == [("user", "a", 0)]


MISTAKEN: tuple[tuple[Dialect, dict[str, Any], str], ...] = (
    (CHAT, {"prompt": "x"}, "prompt: has another name or place in this API; write messages"),
    (CHAT, {"tools": [{**TOOL, "type": "functoin"}]}, "tools[0]: 'functoin' is, or nearly is, what other"),
    (CHAT, {"reasoning": {"efort": "low"}}, "reasoning.efort: is not known; did you mean 'effort'?"),
    (ANTHROPIC, {"tools": [TOOL]}, "tools[0]: 'function' is, or nearly is, what other APIs declare a"),
    (ANTHROPIC, {"stop_sequence": ["a"]}, "did you mean 'stop_sequences'?"),
    (ANTHROPIC, {"stop": ["a"]}, "write stop_sequences"),
    (ANTHROPIC, {"response_format": {}}, "write output_config.format"),
    (ANTHROPIC, {"output_config": {"fromat": {}}}, "output_config.fromat: is not known; did you mean 'form"),
    (ANTHROPIC, {"tool_choice": {"type": "required"}}, "cannot be honoured; use auto, none, any or tool"),
    (RESPONSES, {"tools": [{**FUNCTION, "type": "Function"}]}, "tools[0]: 'Function' is, or nearly is"),
    (
        RESPONSES,
        {"text": {"fromat": {"type": "json_object"}}},
        "text.fromat: is not known; did you mean",
    ),
    (RESPONSES, {"max_token": 3}, "did you mean 'max_output_tokens'?"),
    (RESPONSES, {"max_completion_tokens": 3}, "write max_output_tokens"),
    (RESPONSES, {"response_format": {}}, "write text.format"),
    (GOOGLE, {"tools": [{"functionDeclaration": []}]}, "tools[0]: 'functionDeclaration' is, or nearly is"),
    (GOOGLE, {"generationConfig": {"maxOutputTokns": 5}}, "did you mean 'maxOutputTokens'?"),
    (GOOGLE, {"generationConfig": {"max_tokens": 5}}, "generationConfig.max_tokens: has another name"),
    (GOOGLE, {"generationConfig": {"max_tokens": 5}}, "write maxOutputTokens"),
    (GOOGLE, {"generationConfig": {"stopSequence": ["a"]}}, "did you mean 'stopSequences'?"),
    (GOOGLE, {"generationConfig": {"topk": 5}}, "did you mean 'topK'?"),
    (GOOGLE, {"generationConfig": {"top_ks": 5}}, "did you mean 'topK'?"),
    (
        GOOGLE,
        {"generationConfig": {"responseMimeTyp": "application/json"}},
        "mean 'responseMimeType'?",
    ),
    (GOOGLE, {"maxOutputTokens": 5}, "write generationConfig.maxOutputTokens"),
    (GOOGLE, {"temperatur": 1}, "did you mean 'generationConfig.temperature'?"),
    (GOOGLE, {"parallelToolCalls": False}, "leave it out"),
    (GOOGLE, {"toolConfig": {"functionCallingConfig": {"mode": "any"}}}, "use AUTO, ANY, VALIDATED or NONE"),
)


@pytest.mark.parametrize(("dialect", "fields", "text"), MISTAKEN, ids=lambda one: str(one)[:50])
def test_what_is_misspelt_or_of_another_api_is_refused_with_the_name_that_this_api_has(
    dialect: Dialect, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(UntranslatableError) as raised:
        dialect.parse(body(dialect, **fields))
    assert text in str(raised.value)


def test_allowed_tools_that_are_not_offered_are_named() -> None:
    def choosing(*names: str) -> dict[str, Any]:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}
        return body(CHAT, tools=[TOOL], tool_choice=choice)

    path = r"tool_choice\.allowed_tools\.tools"
    with pytest.raises(UntranslatableError, match=rf"{path}: has 'q', which is no tool here; name some"):
        CHAT.parse(choosing(TOOL["function"]["name"], "q"))
    with pytest.raises(UntranslatableError, match=rf"{path}: has no tool that can be offered; name some"):
        CHAT.parse(choosing())


def test_tools_of_servers_are_dropped_though_they_have_parameters() -> None:
    tools = [TOOL, {"type": "openrouter:web_search", "parameters": {}}]
    builtin = {"type": "builtin_function", "function": {"name": "$web_search"}}
    assert CHAT.parse(body(CHAT, tools=[*tools, builtin])).tools == (TOOL,)
