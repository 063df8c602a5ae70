"""Google's Gemini API: what its clients send becomes messages, and errors name what cannot be translated.

The client for Python runs in `tests/agents` (google-adk), the one for JavaScript likewise (gemini-cli).
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tito_io.dialects import Google, UntranslatableError
from tito_io.dialects.protocol import ReplyStamp
from tito_io.engines.protocol import Delta

from .dialect_turns import TOOL, answer, events

GOOGLE = Google()
HELLO: dict[str, Any] = {"role": "user", "parts": [{"text": "hi"}]}
LOOK = {"name": "look", "args": {"x": 1}}
CALL = {"functionCall": LOOK}
MODEL = {"role": "model", "parts": [CALL]}


def parsed(*contents: Any, **fields: Any) -> Any:
    return GOOGLE.parse({"contents": list(contents) or [HELLO], **fields})


def result(response: Any = None, **fields: Any) -> dict[str, Any]:
    answered = {"name": "look", "response": response or {"output": "x"}, **fields}
    return {"role": "user", "parts": [{"functionResponse": answered}]}


def test_contents_become_messages() -> None:
    said = [
        {"text": "hm", "thought": True, "thoughtSignature": "AA=="},
        {"text": "Let "},
        {"text": "me"},
        {"functionCall": {**LOOK, "id": "a"}},
    ]
    asked = parsed(
        HELLO,
        {"role": "model", "parts": said},
        result({"error": "gone"}, id="a"),
        systemInstruction={"parts": [{"text": "Be kind."}]},
    )
    function = {"name": "look", "arguments": '{"x": 1}'}
    call = {"id": "a", "type": "function", "function": function}
    assert asked.messages == (
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Let me", "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "Error: gone"},
    )
    assert not asked.continue_final_message


def test_names_are_read_in_both_forms() -> None:
    one = parsed(systemInstruction={"parts": [{"text": "a"}]}, generationConfig={"topP": 0.5})
    other = parsed(system_instruction={"parts": [{"text": "a"}]}, generation_config={"top_p": 0.5})
    assert (one.messages, one.sampling) == (other.messages, other.sampling)
    assert one.sampling == {"top_p": 0.5}


def test_calls_and_results_without_ids_belong_together_in_their_order() -> None:
    calls = {"role": "model", "parts": [{"functionCall": LOOK}, {"functionCall": {"name": "find"}}] * 2}
    results = {
        "role": "function",
        "parts": [
            {"functionResponse": {"name": name, "response": {"output": str(place)}}}
            for place, name in enumerate(("find", "look", "look", "find"))
        ],
    }
    _, said, *answered = parsed(HELLO, calls, results).messages
    assert [call["id"] for call in said["tool_calls"]] == ["call_1", "call_2", "call_3", "call_4"]
    assert [(one["tool_call_id"], one["content"]) for one in answered] == [
        ("call_2", "0"),
        ("call_1", "1"),
        ("call_3", "2"),
        ("call_4", "3"),
    ]


def test_contents_of_the_model_in_a_row_are_one_message() -> None:
    messages = parsed(HELLO, {"role": "model", "parts": [{"text": "So"}]}, MODEL, result()).messages
    assert [one["role"] for one in messages] == ["user", "assistant", "tool"]
    assert messages[1]["content"] == "So"


def test_a_response_that_is_repeated_counts_once() -> None:
    parts = [*result(id="a")["parts"], *result(id="b")["parts"], *result(id="a")["parts"]]
    asked = parsed(HELLO, MODEL, {"role": "user", "parts": parts})
    assert [one["tool_call_id"] for one in asked.messages[2:]] == ["a", "b"]
    assert asked.ignored == ("repeated[type=functionResponse]",)


def test_results_come_before_what_the_user_says() -> None:
    content = {"role": "user", "parts": [{"text": "and?"}, *result()["parts"]]}
    assert [one["role"] for one in parsed(HELLO, MODEL, content).messages[2:]] == ["tool", "user"]


def test_functions_have_json_schemas() -> None:
    typed = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "enum": ["A"]},
            "many": {"type": "ARRAY", "items": {"anyOf": [{"type": "INTEGER"}, {"type": "NULL"}]}},
        },
    }
    plain = TOOL["function"]["parameters"]
    tools = [
        {
            "functionDeclarations": [
                {"name": "look", "description": "Look it up", "parametersJsonSchema": plain},
                {"name": "find", "parameters": typed},
                {"name": "stop"},
            ]
        },
        {"googleSearch": {}},
    ]
    asked = parsed(tools=tools)
    assert asked.tools[0] == TOOL
    assert [one["function"]["parameters"] for one in asked.tools[1:]] == [
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["A"]},
                "many": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            },
        },
        {"type": "object", "properties": {}},
    ]
    assert asked.ignored == ("tools[type=googleSearch]",)
    none = {"functionCallingConfig": {"mode": "NONE"}}
    assert parsed(tools=tools, toolConfig=none).tools == ()


def test_sampling_arguments_have_the_engines_names() -> None:
    config = {
        "temperature": 1,
        "topP": 0.95,
        "topK": 64,
        "seed": 3,
        "maxOutputTokens": 9,
        "stopSequences": ["a"],
        "presencePenalty": 0.5,
        "frequencyPenalty": -0.5,
        "candidateCount": 1,
        "responseMimeType": "text/plain",
    }
    assert parsed(generationConfig=config).sampling == {
        "temperature": 1,
        "top_p": 0.95,
        "top_k": 64,
        "seed": 3,
        "max_tokens": 9,
        "stop": ["a"],
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
    }


def only(mode: str, *names: str) -> dict[str, Any]:
    """Return a choice of these functions alone, in the form of the chat API."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("calling", "choice"),
    [
        ({"mode": "AUTO"}, None),
        ({"mode": "ANY"}, "required"),
        ({"mode": "ANY", "allowedFunctionNames": ["find", "look", "wait"]}, "required"),
        ({"mode": "ANY", "allowedFunctionNames": ["wait", "look"]}, only("required", "wait", "look")),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["look"]}, only("auto", "look")),
        ({"mode": "VALIDATED"}, None),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["find", "look", "wait"]}, None),
        (
            {"mode": "ANY", "allowedFunctionNames": ["look"]},
            {"type": "function", "function": {"name": "look"}},
        ),
    ],
)
def test_calls_can_be_demanded(calling: Any, choice: Any) -> None:
    tools = [{"functionDeclarations": [{"name": "look"}, {"name": "find"}, {"name": "wait"}]}]
    asked = parsed(tools=tools, toolConfig={"functionCallingConfig": calling})
    assert asked.sampling.get("tool_choice") == choice
    loose = calling["mode"] == "VALIDATED" and choice is None
    assert asked.ignored == (("toolConfig.functionCallingConfig.mode",) if loose else ())


def test_json_can_be_demanded() -> None:
    config = {"responseMimeType": "application/json"}
    assert parsed(generationConfig=config).sampling == {"response_format": {"type": "json_object"}}
    schema = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}
    asked = parsed(generationConfig={**config, "responseSchema": schema}).sampling["response_format"]
    assert asked["json_schema"]["schema"] == {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("thinking", "args"),
    [
        ({"includeThoughts": True}, None),
        ({"thinkingBudget": -1}, None),
        ({"thinkingBudget": 0}, {"enable_thinking": False}),
        ({"thinkingBudget": 512}, {"enable_thinking": True, "thinking_budget": 512}),
        ({"thinkingLevel": "LOW"}, {"reasoning_effort": "low"}),
    ],
)
def test_thinking_becomes_arguments_of_the_template(thinking: Any, args: Any) -> None:
    found = parsed(generationConfig={"thinkingConfig": thinking}).sampling
    assert found.get("chat_template_kwargs") == args


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"contents": []}, "contents"),
        ({}, "contents"),
        ({"contents": [{"role": "system", "parts": []}]}, "contents[0].role"),
        ({"contents": [{"parts": [{"executableCode": {}}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"role": "model", "parts": [{"inlineData": {}}]}]}, "contents[0].parts[0]"),
        (
            {"contents": [{"parts": [{"inlineData": {"mimeType": "audio/wav", "data": ""}}]}]},
            "contents[0].parts[0].inlineData.mimeType",
        ),
        ({"contents": [result()]}, "contents[0].parts[0].functionResponse"),
        ({"contents": [{"parts": [{"text": "a", "inlineData": {}}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"role": "model", "parts": [{"text": "a", **CALL}]}]}, "contents[0].parts[0]"),
        ({"contents": [HELLO, {"parts": [{"text": "a", **result()["parts"][0]}]}]}, "contents[1].parts[0]"),
        ({"contents": [HELLO, MODEL, result(parts=[{}])]}, "contents[2].parts[0].functionResponse.parts"),
        ({"generationConfig": {"candidateCount": 2}}, "generationConfig.candidateCount"),
        ({"generationConfig": {"temperature": "hot"}}, "generationConfig.temperature"),
        ({"cachedContent": "c"}, "cachedContent"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "toolConfig.functionCallingConfig.mode"),
        ({"generationConfig": {"responseMimeType": "text/csv"}}, "generationConfig.responseMimeType"),
        ({"generationConfig": {"responseSchema": {}}}, "generationConfig.responseSchema"),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name(body: dict[str, Any], field: str) -> None:
    body = body if "contents" in body or field == "contents" else {"contents": [HELLO], **body}
    with pytest.raises(UntranslatableError) as caught:
        GOOGLE.parse(body)
    assert caught.value.field == field


def test_an_empty_text_beside_something_else_in_a_part_is_none() -> None:
    calling = {"role": "model", "parts": [{"text": "", **CALL}]}
    asked = GOOGLE.parse({"contents": [HELLO, calling, result()]})
    assert [one["function"]["name"] for one in asked.messages[1]["tool_calls"]] == ["look"]


def test_empty_ids_are_none() -> None:
    called = {"functionCall": {**LOOK, "id": ""}}
    answered = result(id="")["parts"]
    contents = [HELLO, {"role": "model", "parts": [called, called]}, {"role": "user", "parts": answered * 2}]
    asked = GOOGLE.parse({"contents": contents})
    assert [one.get("tool_call_id") for one in asked.messages[2:]] == ["call_1", "call_2"]
    assert not asked.ignored


def test_text_after_a_call_is_noted() -> None:
    calling = {"role": "model", "parts": [{"text": "a"}, CALL, {"text": "b"}]}
    asked = GOOGLE.parse({"contents": [HELLO, calling, result()]})
    assert (asked.messages[1]["content"], asked.ignored) == ("ab", ("order[type=text]",))


def test_what_is_not_known_is_accepted_unless_the_dialect_is_strict() -> None:
    body = {"contents": [HELLO], "newField": 1}
    assert GOOGLE.parse(body).ignored == ("newField",)
    with pytest.raises(UntranslatableError):
        Google(strict=True).parse(body)


def test_the_path_says_the_model_and_whether_it_is_streamed() -> None:
    asked = Google(model="gemini", streaming=True).parse({"contents": [HELLO]})
    assert (asked.model, asked.stream) == ("gemini", True)


def test_a_whole_answer() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
    message = {"role": "assistant", "content": "So", "reasoning": "hm", "tool_calls": [call]}
    asked = parsed(generationConfig={"responseLogprobs": True})
    body = GOOGLE.answer_body(asked, answer(message, (7,), finish_reason="length"))
    (candidate,) = body["candidates"]
    assert candidate["content"] == {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True},
            {"text": "So"},
            {"functionCall": {"id": "a", "name": "look", "args": {"x": 1}}},
        ],
    }
    assert candidate["finishReason"] == "MAX_TOKENS"
    assert candidate["logprobsResult"]["chosenCandidates"] == [
        {"token": "token_id:7", "tokenId": 7, "logProbability": -0.5}
    ]
    assert body["usageMetadata"] == {
        "promptTokenCount": 10,
        "candidatesTokenCount": 1,
        "totalTokenCount": 11,
        "cachedContentTokenCount": 6,
    }
    assert (body["modelVersion"], body["responseId"]) == ("m", "resp_1")


def test_a_count_takes_contents_or_a_request() -> None:
    bodies: tuple[dict[str, Any], ...] = (
        {"contents": [HELLO]},
        {"generateContentRequest": {"contents": [HELLO]}},
    )
    for body in bodies:
        assert GOOGLE.parse_count(body).messages == ({"role": "user", "content": "hi"},)
    assert GOOGLE.count_body(7) == {"totalTokens": 7}


def test_reasoning_is_streamed_in_one_part() -> None:
    stream = GOOGLE.stream(parsed(), ReplyStamp(id="r", created=1, model="m"))
    raw = [
        stream.delta(Delta(ids=(1,), text=text)) for text in ("<think>", "h", "m", "</think>", "So", " it")
    ]
    raw.append(stream.finish(answer({"role": "assistant", "content": "So it", "reasoning": "hm"})))
    found = [one["candidates"][0]["content"]["parts"] for one in events(b"".join(raw))]
    assert found == [[{"text": "hm", "thought": True}], [{"text": "So"}], [{"text": " it"}], []]


def test_an_error_in_a_stream_is_plain_json_with_a_status() -> None:
    stream = GOOGLE.stream(parsed(), ReplyStamp(id="r", created=1, model="m"))
    error = orjson.loads(stream.fail(503, "UnreachableError", "gone"))["error"]
    assert (error["code"], error["status"], error["message"]) == (503, "UNAVAILABLE", "gone")
    assert GOOGLE.error(400, "X", "no", param="contents")["error"]["details"][0]["metadata"] == {
        "field": "contents"
    }
