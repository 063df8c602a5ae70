"""Forced calls and schemas through the SDKs that agents use: streamed or whole, by messages and by ids."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import anthropic
import attrs
import httpx2
import openai
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from tests.io.embedded.embedded_client import WEATHER
from tito_io.embedded import MODEL, TIDY, FaultRates, app
from tito_io.engines.vllm import VLLM
from tito_io.serve.gateway import Gateway, build_gateway
from tito_io.serve.stores import MemoryStore

from .sdk_gateway import ASK, ASKED, FUNCTION, answered, session

JUDGE = Draft202012Validator(FUNCTION["parameters"])
OTHER: Any = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
WAIT: Any = {"type": "function", "function": {"name": "wait"}}
ROUTES = pytest.mark.parametrize("route", ["completions", "chat"])
STREAMED = pytest.mark.parametrize("stream", [False, True])
RATES = attrs.evolve(FaultRates(), endless=0.0, tool_calls=0.5)
MODELLED: Any = {"model": "m", "max_tokens": 900}
RESPONDED: Any = {"model": "m", "input": ASK, "max_output_tokens": 900}
TITLE = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}


class Place(BaseModel):
    """What a client reads an answer into."""

    city: str
    kind: str | None
    near: list[int]


def gateway(route: Any = "completions", seed: int = 5, rates: FaultRates = RATES) -> Gateway:
    transport = httpx2.ASGITransport(app(seed=seed, fault_rates=rates, max_new_tokens=None))
    engine = VLLM("http://embedded", route=route, transport=transport)
    return build_gateway(engine, MemoryStore(), model=MODEL)


def by_ids(turns: int) -> Counter[str]:
    """Return the routes of turns of which the first alone goes by messages."""
    return Counter(MITO=1, TITO=turns - 1)


def results(message: Any) -> list[Any]:
    """Return what comes after a message: the results of its calls, or a question."""
    calls = message.tool_calls or ()
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls]
    return results or [{"role": "user", "content": "Another."}]


def dumped(message: Any) -> dict[str, Any]:
    """Return a message as a client appends it."""
    found: dict[str, Any] = message.model_dump(exclude_none=True, exclude={"parsed"})
    return found


@ROUTES
@STREAMED
def test_a_chat_is_forced_to_call_turn_by_turn(route: str, *, stream: bool) -> None:
    """The ToolCallingAgent of smolagents sends `required` with every turn, LangGraph a named function."""
    messages = list(ASKED)
    named = {"type": "function", "function": {"name": "get_weather"}}
    with session(gateway(route)) as talk, talk.openai() as client:
        for turn in range(4):
            choice = named if turn % 2 else "required"
            asked: Any = {**MODELLED, "messages": messages, "tools": [WEATHER, OTHER], "tool_choice": choice}
            message = answered(client.chat.completions, stream=stream, **asked).choices[0].message
            calls = message.tool_calls
            assert calls
            names = {call.function.name for call in calls}
            assert names == {"get_weather"} if turn % 2 else names <= {"get_weather", "get_time"}
            for call in calls:
                if call.function.name == "get_weather":
                    JUDGE.validate(json.loads(call.function.arguments))
            messages += [dumped(message), *results(message)]
    assert talk.routes == by_ids(4)


@ROUTES
def test_only_allowed_tools_are_called_and_the_prompt_keeps_all(route: str) -> None:
    """Pydantic AI sends `allowed_tools` for a `tool_choice` that lists tools."""
    tools: Any = [WEATHER, OTHER, WAIT]
    allowed = [{"type": "function", "function": {"name": name}} for name in ("get_time", "wait")]
    prompts, called = set(), []
    for seed in range(8):
        for mode in (None, "auto", "required"):
            messages = list(ASKED)
            choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
            asked: Any = {**MODELLED, "tools": tools, **({"tool_choice": choice} if mode else {})}
            rates = attrs.evolve(TIDY, tool_calls=1.0, second_calls=0.5)
            with session(gateway(route, seed, rates)) as talk, talk.openai() as client:
                for _ in range(2):
                    made = client.chat.completions.create(messages=messages, **asked)
                    message: Any = made.choices[0].message
                    names = {call.function.name for call in message.tool_calls or ()}
                    assert mode is None or names <= {"get_time", "wait"}
                    assert mode != "required" or names
                    called.append((mode, bool(names)))
                    messages += [dumped(message), *results(message)]
            prompts.add(tuple(talk.steps[0].prompt_ids))
            assert talk.routes == by_ids(2)
    assert len(prompts) == 1
    assert {(None, True), ("auto", True), ("auto", False)} <= set(called)


@STREAMED
def test_responses_allow_some_tools(*, stream: bool) -> None:
    functions: Any = [{"type": "function", **FUNCTION}, {"type": "function", **OTHER["function"]}]
    allowed = [{"type": "function", "name": "get_time"}]
    choice: Any = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    with session(gateway()) as talk, talk.openai() as client:
        asked: Any = {**RESPONDED, "tools": functions, "tool_choice": choice}
        answer = answered(client.responses, stream=stream, **asked)
    assert {item.name for item in answer.output if item.type == "function_call"} == {"get_time"}
    assert answer.tool_choice.model_dump() == choice


@STREAMED
def test_claude_is_forced_to_call_one_tool(*, stream: bool) -> None:
    tool: Any = {"name": "get_weather", "input_schema": FUNCTION["parameters"]}
    messages = list(ASKED)
    rates = attrs.evolve(RATES, second_calls=1.0)
    choices: list[Any] = [{"type": "any"}, {"type": "tool", "name": "get_weather"}]
    with session(gateway(rates=rates)) as talk, talk.claude() as client:
        for choice in (*choices, *choices):
            single = {**choice, "disable_parallel_tool_use": True}
            asked: Any = {**MODELLED, "messages": messages, "tools": [tool], "tool_choice": single}
            message = answered(client.messages, stream=stream, **asked)
            [use] = [block for block in message.content if block.type == "tool_use"]
            JUDGE.validate(use.input)
            assert message.stop_reason == "tool_use"
            result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
            messages += [
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": [result]},
            ]
    assert talk.routes == by_ids(4)


@STREAMED
def test_claude_code_s_title_is_json(*, stream: bool) -> None:
    form: Any = {"format": {"type": "json_schema", "schema": TITLE}}
    messages = list(ASKED)
    with session(gateway()) as talk, talk.claude() as client:
        for _ in range(3):
            asked: Any = {**MODELLED, "messages": messages, "output_config": form}
            message = answered(client.messages, stream=stream, **asked)
            [text] = [block.text for block in message.content if block.type == "text"]
            Draft202012Validator(TITLE).validate(json.loads(text))
            messages += [
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": "Another."},
            ]
    assert talk.routes == by_ids(3)


@ROUTES
def test_openai_parses_an_answer_into_a_model(route: str) -> None:
    messages = list(ASKED)
    with session(gateway(route)) as talk, talk.openai() as client:
        for _ in range(3):
            made: Any = client.chat.completions.parse(messages=messages, response_format=Place, **MODELLED)
            assert isinstance(made.choices[0].message.parsed, Place)
            messages += [dumped(made.choices[0].message), {"role": "user", "content": "Another."}]
        answer = client.responses.parse(text_format=Place, **RESPONDED)
        loose: Any = client.chat.completions.create(
            messages=messages, response_format={"type": "json_object"}, **MODELLED
        )
    assert isinstance(answer.output_parsed, Place)
    assert isinstance(json.loads(loose.choices[0].message.content or ""), dict)
    assert talk.routes == Counter(MITO=2, TITO=3)


@ROUTES
def test_an_agent_with_a_schema_may_call_its_tools_first(route: str) -> None:
    """pydantic-ai and openai-agents send the schema of the final answer with every turn."""
    found = set()
    asked: Any = {**RESPONDED, "tools": [{"type": "function", **FUNCTION}]}
    for seed in range(12):
        with session(gateway(route, seed)) as talk, talk.openai() as client:
            made = client.responses.parse(text_format=Place, **asked)
        called = [item for item in made.output if item.type == "function_call"]
        assert isinstance(made.output_parsed, Place) or called
        found.add(bool(called))
    assert found == {True, False}


@ROUTES
def test_at_most_one_call_is_sampled_where_calls_may_not_be_parallel(route: str) -> None:
    counts = []
    asked: Any = {**MODELLED, "messages": ASKED, "tools": [WEATHER], "parallel_tool_calls": False}
    for seed in range(12):
        rates = attrs.evolve(TIDY, tool_calls=1.0, second_calls=1.0)
        with session(gateway(route, seed, rates)) as talk, talk.openai() as client:
            made = client.chat.completions.create(**asked)
        counts.append(len(made.choices[0].message.tool_calls or ()))
    assert set(counts) == {0, 1}


@STREAMED
def test_a_malformed_schema_is_a_bad_request_that_names_the_field(*, stream: bool) -> None:
    broken: Any = {"type": "object", "properties": {"a": {"type": "text"}}}
    form: Any = {"type": "json_schema", "name": "x", "schema": broken}
    with session(gateway()) as talk, talk.openai() as client, talk.claude() as claude:
        chat = {"response_format": {"type": "json_schema", "json_schema": form}, "messages": ASKED}
        for api, asked, path in (
            (client.chat.completions, {**MODELLED, **chat}, "response_format.json_schema.schema"),
            (client.responses, {**RESPONDED, "text": {"format": form}}, "text.format.schema"),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                api.create(stream=stream, **asked)
            assert caught.value.param == f"{path}.properties.a.type"
        wanted: Any = {**MODELLED, "messages": ASKED, "output_config": {"format": form}}
        with pytest.raises(
            anthropic.BadRequestError, match=r"output_config\.format\.schema\.properties\.a\.type"
        ):
            claude.messages.create(stream=stream, **wanted)
