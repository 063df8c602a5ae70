"""Forced calls and schemas through the SDKs that agents use: streamed or whole, by messages and by ids."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import attrs
import httpx2
import openai
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from tests.io.embedded.embedded_client import WEATHER
from tito_io.client.turn import Route
from tito_io.embedded import TIDY, FaultRates, app
from tito_io.engines.vllm import VLLM

from .dialect_gateway import Gateway
from .test_sdks import ASK, FUNCTION, chatting, claude

JUDGE = Draft202012Validator(FUNCTION["parameters"])
OTHER: Any = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
ROUTES = ("completions", "chat")
RATES = attrs.evolve(FaultRates(), endless=0.0, tool_calls=0.5)
LENGTH = 900
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
    return Gateway(VLLM("http://embedded", route=route, transport=transport))


def routes(used: Gateway) -> set[Route]:
    return set(used.client.counts.routes)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_is_forced_to_call_turn_by_turn(route: str, *, stream: bool) -> None:
    """The ToolCallingAgent of smolagents sends `required` with every turn, LangGraph a named function."""
    messages: list[Any] = [{"role": "user", "content": ASK}]
    named = {"type": "function", "function": {"name": "get_weather"}}
    used = gateway(route)
    with chatting(used) as client:
        for turn in range(4):
            asked: Any = {"model": "m", "messages": messages, "tools": [WEATHER, OTHER], "max_tokens": LENGTH}
            asked["tool_choice"] = named if turn % 2 else "required"
            if stream:
                with client.chat.completions.stream(**asked) as events:
                    message = events.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(**asked).choices[0].message
            assert message.tool_calls
            names = {call.function.name for call in message.tool_calls}
            assert names == {"get_weather"} if turn % 2 else names <= {"get_weather", "get_time"}
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            for call in message.tool_calls:
                if call.function.name == "get_weather":
                    JUDGE.validate(json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
    assert routes(used) == {Route.MITO, Route.TITO}


@pytest.mark.parametrize("route", ROUTES)
def test_only_allowed_tools_are_called_and_the_prompt_keeps_all(route: str) -> None:
    """Pydantic AI sends `allowed_tools` for a `tool_choice` that lists tools."""
    allowed = [{"type": "function", "function": {"name": name}} for name in ("get_time", "wait")]
    tools: Any = [WEATHER, OTHER, {"type": "function", "function": {"name": "wait"}}]
    prompts, called = set(), []
    for seed in range(8):
        for mode in (None, "auto", "required"):
            used = gateway(route, seed, attrs.evolve(TIDY, tool_calls=1.0, second_calls=0.5))
            messages: list[Any] = [{"role": "user", "content": ASK}]
            choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
            asked: Any = {"tool_choice": choice} if mode else {}
            with chatting(used) as client:
                for _ in range(2):
                    made = client.chat.completions.create(
                        model="m", messages=messages, tools=tools, max_tokens=LENGTH, **asked
                    )
                    message: Any = made.choices[0].message
                    names = {call.function.name for call in message.tool_calls or ()}
                    assert mode is None or names <= {"get_time", "wait"}
                    assert mode != "required" or names
                    called.append((mode, bool(names)))
                    messages += [message.model_dump(exclude_none=True), *results(message)]
            prompts.add(tuple(used.steps[0].prompt_ids))
            assert routes(used) == {Route.MITO, Route.TITO}
    assert len(prompts) == 1
    assert {(None, True), ("auto", True), ("auto", False)} <= set(called)


def results(message: Any) -> list[Any]:
    """Return what comes after a message: the results of its calls, or a question."""
    calls = message.tool_calls or ()
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls]
    return results or [{"role": "user", "content": "Another."}]


@pytest.mark.parametrize("stream", [False, True])
def test_responses_allow_some_tools(*, stream: bool) -> None:
    functions: Any = [{"type": "function", **FUNCTION}, {"type": "function", **OTHER["function"]}]
    choice: Any = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "get_time"}],
    }
    asked: Any = {"model": "m", "input": ASK, "tools": functions, "max_output_tokens": LENGTH}
    with chatting(gateway()) as client:
        if stream:
            with client.responses.stream(**asked, tool_choice=choice) as events:
                answer: Any = events.get_final_response()
        else:
            answer = client.responses.create(**asked, tool_choice=choice)
    assert {item.name for item in answer.output if item.type == "function_call"} == {"get_time"}
    assert answer.tool_choice.model_dump() == choice


@pytest.mark.parametrize("stream", [False, True])
def test_claude_is_forced_to_call_one_tool(*, stream: bool) -> None:
    tool: Any = {"name": "get_weather", "input_schema": FUNCTION["parameters"]}
    messages: list[Any] = [{"role": "user", "content": ASK}]
    used = gateway(rates=attrs.evolve(RATES, second_calls=1.0))
    choices: list[Any] = [
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
    ]
    with claude(used) as client:
        for choice in (*choices, *choices):
            asked: Any = {"model": "m", "messages": messages, "tools": [tool], "max_tokens": LENGTH}
            if stream:
                with client.messages.stream(**asked, tool_choice=choice) as events:
                    message: Any = events.get_final_message()
            else:
                message = client.messages.create(**asked, tool_choice=choice)
            [use] = [block for block in message.content if block.type == "tool_use"]
            JUDGE.validate(use.input)
            assert message.stop_reason == "tool_use"
            result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
            messages += [
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": [result]},
            ]
    assert routes(used) == {Route.MITO, Route.TITO}


@pytest.mark.parametrize("stream", [False, True])
def test_claude_code_s_title_is_json(*, stream: bool) -> None:
    form: Any = {"format": {"type": "json_schema", "schema": TITLE}}
    messages: list[Any] = [{"role": "user", "content": ASK}]
    used = gateway()
    with claude(used) as client:
        for _ in range(3):
            asked: Any = {"model": "m", "messages": messages, "max_tokens": LENGTH, "output_config": form}
            if stream:
                with client.messages.stream(**asked) as events:
                    message: Any = events.get_final_message()
            else:
                message = client.messages.create(**asked)
            [text] = [block.text for block in message.content if block.type == "text"]
            Draft202012Validator(TITLE).validate(json.loads(text))
            messages += [
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": "Another."},
            ]
    assert routes(used) == {Route.MITO, Route.TITO}


@pytest.mark.parametrize("route", ROUTES)
def test_openai_parses_an_answer_into_a_model(route: str) -> None:
    messages: list[Any] = [{"role": "user", "content": ASK}]
    used = gateway(route)
    with chatting(used) as client:
        for _ in range(3):
            made = client.chat.completions.parse(
                model="m", messages=messages, response_format=Place, max_tokens=LENGTH
            )
            assert isinstance(made.choices[0].message.parsed, Place)
            said = made.choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})
            messages += [said, {"role": "user", "content": "Another."}]
        answer = client.responses.parse(model="m", input=ASK, text_format=Place, max_output_tokens=LENGTH)
        loose = client.chat.completions.create(
            model="m", messages=messages, response_format={"type": "json_object"}, max_tokens=LENGTH
        )
    assert isinstance(answer.output_parsed, Place)
    assert isinstance(json.loads(loose.choices[0].message.content or ""), dict)
    assert routes(used) == {Route.MITO, Route.TITO}


@pytest.mark.parametrize("route", ROUTES)
def test_an_agent_with_a_schema_may_call_its_tools_first(route: str) -> None:
    """pydantic-ai and openai-agents send the schema of the final answer with every turn."""
    found = set()
    function: Any = {"type": "function", **FUNCTION}
    for seed in range(12):
        used = gateway(route, seed)
        with chatting(used) as client:
            asked: Any = {"model": "m", "tools": [function], "max_output_tokens": LENGTH}
            made = client.responses.parse(input=ASK, text_format=Place, **asked)
            called = [item for item in made.output if item.type == "function_call"]
            assert isinstance(made.output_parsed, Place) or called
            found.add(bool(called))
    assert found == {True, False}


@pytest.mark.parametrize("route", ROUTES)
def test_at_most_one_call_is_sampled_where_calls_may_not_be_parallel(route: str) -> None:
    counts = []
    for seed in range(12):
        used = gateway(route, seed, attrs.evolve(TIDY, tool_calls=1.0, second_calls=1.0))
        with chatting(used) as client:
            made = client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": ASK}],
                tools=[WEATHER],  # type: ignore[list-item]  # a dict
                parallel_tool_calls=False,
                max_tokens=LENGTH,
            )
        counts.append(len(made.choices[0].message.tool_calls or ()))
    assert set(counts) == {0, 1}


@pytest.mark.parametrize("stream", [False, True])
def test_a_malformed_schema_is_a_bad_request_that_names_the_field(*, stream: bool) -> None:
    broken: Any = {"type": "object", "properties": {"a": {"type": "text"}}}
    with chatting(gateway()) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": ASK}],
                response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": broken}},
                stream=stream,
            )
        assert caught.value.param == "response_format.json_schema.schema.properties.a.type"
        form: Any = {"format": {"type": "json_schema", "name": "x", "schema": broken}}
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="m", input=ASK, text=form, stream=stream)
        assert caught.value.param == "text.format.schema.properties.a.type"
    wanted: Any = {"format": {"type": "json_schema", "schema": broken}}
    said: Any = [{"role": "user", "content": ASK}]
    with claude(gateway()) as client_:
        path = r"output_config\.format\.schema\.properties\.a\.type"
        with pytest.raises(anthropic.BadRequestError, match=path):
            client_.messages.create(
                model="m", messages=said, max_tokens=9, stream=stream, output_config=wanted
            )
