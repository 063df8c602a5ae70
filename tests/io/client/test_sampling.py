"""Every sampling argument is honoured, or named in an error."""

from __future__ import annotations

from typing import Any

import pytest

from tito_core import InputError
from tito_io.client.sampling import NAMES, ONLY, parse_sampling
from tito_io.dialects.fields import ENGINE_ARGUMENTS
from tito_io.engines.constraint import Constraint
from tito_io.engines.dynamo.requests import TABLE
from tito_io.engines.protocol import Sampling
from tito_io.engines.sglang import requests as sglang
from tito_io.engines.vllm import requests as vllm

LOOK = {"type": "function", "function": {"name": "look"}}
WAIT = {"type": "function", "function": {"name": "wait"}}
NAMED = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [1]}}}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, Sampling()),
        ({}, Sampling()),
        ({"max_tokens": 8}, Sampling(max_tokens=8)),
        ({"max_completion_tokens": 8}, Sampling(max_tokens=8)),
        ({"max_completion_tokens": 8, "max_tokens": 8}, Sampling(max_tokens=8)),
        ({"max_completion_tokens": None, "max_tokens": 8}, Sampling(max_tokens=8)),
        ({"temperature": 0, "seed": 0, "n": 2}, Sampling(temperature=0, seed=0, n=2)),
        ({"stop": "a"}, Sampling(stop=("a",))),
        ({"stop": ["a", "b"], "stop_token_ids": [3]}, Sampling(stop=("a", "b"), stop_ids=(3,))),
        ({"stop": [], "stop_token_ids": []}, Sampling()),
        ({"top_p": None, "seed": None, "n": None, "extra_body": None}, Sampling()),
        ({"logprobs": True, "return_token_ids": False}, Sampling()),  # ids are always asked for
        ({"top_p": 0.9, "top_k": 5}, Sampling(extra={"top_p": 0.9, "top_k": 5})),
        ({"top_p": 0.9, "extra_body": {"top_k": 5}}, Sampling(extra={"top_p": 0.9, "top_k": 5})),
        ({"top_p": 0.9, "extra_body": {"top_p": 0.5}}, Sampling(extra={"top_p": 0.5})),
        ({"top_p": 0.9, "extra_body": {"top_p": None}}, Sampling()),
        ({"extra_body": {"max_tokens": 3, "return_token_ids": True}}, Sampling(max_tokens=3)),
    ],
)
def test_arguments_are_parsed(given: Any, meant: Sampling) -> None:
    asked = parse_sampling(given)
    assert (asked.sampling, asked.template_args) == (meant, {})


@pytest.mark.parametrize("within", [False, True])
def test_template_arguments_are_kept_apart(within: bool) -> None:
    said = {"chat_template_kwargs": {"enable_thinking": False}}
    asked = parse_sampling({"extra_body": said} if within else said)
    assert asked.template_args == {"enable_thinking": False}
    assert asked.sampling == Sampling()


def test_the_caller_s_arguments_stay_as_they_are() -> None:
    given = {"max_tokens": 8, "extra_body": {"top_k": 5}, "stop": ["a"]}
    parse_sampling(given)
    assert given == {"max_tokens": 8, "extra_body": {"top_k": 5}, "stop": ["a"]}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"max_tokens": 1, "max_completion_tokens": 2}, "mean the same"),
        ({"max_tokens": 0}, "max_tokens is 0; give at least 1"),
        ({"max_tokens": "8"}, "max_tokens is '8'; give a whole number"),
        ({"max_tokens": True}, "max_tokens is True; give a whole number"),
        ({"n": 0}, "n is 0; give at least 1"),
        ({"seed": 1.5}, "seed is 1.5; give a whole number"),
        ({"temperature": "hot"}, "temperature is 'hot'; give a number"),
        ({"temperature": False}, "temperature is False; give a number"),
        ({"stop": 3}, "stop is 3; give a string or a list"),
        ({"stop": [3]}, "not empty"),
        ({"stop": ""}, "not empty"),
        ({"stop_token_ids": "12"}, "stop_token_ids is '12'; give a list"),
        ({"stop_token_ids": [1.5]}, "stop_token_ids is 1.5"),
        ({"chat_template_kwargs": ["x"]}, "chat_template_kwargs is .*; give an object"),
        ({"extra_body": ["x"]}, "extra_body is .*; give an object"),
        ({"model": "m"}, "'model' is not a sampling argument; the engine is made with it"),
        ({"stream": True}, "pass `watch`"),
        ({"extra_body": {"tools": []}}, "pass `tools`"),
    ],
)
def test_an_argument_that_is_wrong_is_named(given: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        parse_sampling(given)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxtokens", "'maxtokens' is unknown; did you mean 'max_tokens'?"),
        ("max_token", "did you mean 'max_tokens'?"),
        ("temprature", "did you mean 'temperature'?"),
        ("topp", "did you mean 'top_p'?"),
        ("stop_tokens_ids", "did you mean 'stop_token_ids'?"),
        ("max_new_tokens", "is not a sampling argument; write max_tokens"),
        ("zzz", "'zzz' is unknown; leave it out"),
    ],
)
@pytest.mark.parametrize("within", [False, True])
def test_an_unknown_name_is_an_error_that_suggests_the_right_one(name: str, text: str, within: bool) -> None:
    with pytest.raises(InputError) as caught:
        parse_sampling({"extra_body": {name: 3}} if within else {name: 3})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("modalities", ["text", "audio"]),
        ("verbosity", "low"),
    ],
)
def test_a_value_that_cannot_be_honoured_is_an_error(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} is .*, which cannot be honoured"):
        parse_sampling({name: value})


def some(mode: str, *names: str) -> dict[str, Any]:
    """Return a choice that allows these tools alone."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"tool_choice": "required"}, Constraint(must_call=())),
        (
            {"tool_choice": {"type": "function", "function": {"name": "look"}}},
            Constraint(must_call=("look",)),
        ),
        ({"tool_choice": some("required", "look", "wait")}, Constraint(must_call=("look", "wait"))),
        ({"tool_choice": some("auto", "look")}, Constraint(may_call=("look",))),
        (
            {"tool_choice": some("auto", "look"), "response_format": NAMED},
            Constraint(may_call=("look",), schema={"enum": [1]}),
        ),
        ({"parallel_tool_calls": False}, Constraint(one_call=True)),
        ({"response_format": {"type": "json_object"}}, Constraint(schema={"type": "object"})),
        ({"extra_body": {"response_format": NAMED}}, Constraint(schema={"enum": [1]})),
        # A turn that has to call has no content that a schema could bind.
        ({"tool_choice": "required", "response_format": NAMED}, Constraint(must_call=())),
        (
            {"tool_choice": "auto", "parallel_tool_calls": True, "response_format": {"type": "text"}},
            None,
        ),
    ],
)
def test_what_openai_s_chat_calls_it_is_a_constraint(given: Any, meant: Constraint | None) -> None:
    assert parse_sampling(given).sampling == Sampling(constraint=meant)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"tool_choice": "none"}, "forbids calls: pass no `tools`"),
        ({"tool_choice": "any"}, "tool_choice is 'any'; give"),
        ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice is .*; give"),
        ({"tool_choice": some("any", "look")}, "tool_choice is .*; give"),
        ({"tool_choice": some("auto")}, "tool_choice is .*; give"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}}, "is .*; give"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls is 1; give True or False"),
        ({"response_format": "json"}, "response_format is 'json'; give"),
        ({"response_format": {"type": "json_schema"}}, "response_format is .*; give"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": []}}}},
            r"response_format\.json_schema\.schema\.enum is not a list with entries",
        ),
    ],
)
def test_a_constraint_that_is_malformed_is_named(given: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        parse_sampling(given)


@pytest.mark.parametrize(
    ("choice", "tools", "text"),
    [
        ("required", [], "a call is demanded, and there are no tools"),
        ({"type": "function", "function": {"name": "a"}}, [LOOK], "'a' is not one of the tools"),
        (some("auto", "look", "a"), [LOOK], "'a' is not one of the tools"),
    ],
)
def test_a_call_is_demanded_of_tools_alone(choice: Any, tools: list[Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        parse_sampling({"tool_choice": choice}).among(tools)


def test_without_tools_there_is_no_call_to_limit() -> None:
    limited = parse_sampling({"parallel_tool_calls": False})
    assert limited.among([]).sampling.constraint is None
    assert limited.among([LOOK]).sampling.constraint == Constraint(one_call=True)


def test_all_of_the_tools_are_no_choice() -> None:
    allowed = parse_sampling({"tool_choice": some("auto", "look")})
    assert allowed.among([LOOK]).sampling.constraint is None
    assert allowed.among([LOOK, WAIT]).sampling.constraint == Constraint(may_call=("look",))


def test_a_default_that_is_spelled_out_changes_nothing() -> None:
    assert parse_sampling({name: default for name, (default, _) in ONLY.items()}) == parse_sampling({})


@pytest.mark.parametrize(
    "names",
    [ENGINE_ARGUMENTS, vllm.WITHIN | vllm.BESIDE, sglang.BESIDE, TABLE.keys()],
    ids=["dialects", "vllm", "sglang", "dynamo"],
)
def test_what_a_dialect_passes_on_and_an_adapter_takes_is_known(names: frozenset[str]) -> None:
    assert sorted(names - NAMES) == []


def test_an_engine_s_own_name_may_be_added() -> None:
    with pytest.raises(InputError, match="'power_sampling' is unknown"):
        parse_sampling({"power_sampling": 2})
    assert parse_sampling({"power_sampling": 2}, {"power_sampling"}).sampling.extra == {"power_sampling": 2}


def test_reasoning_effort_is_an_argument_of_the_template() -> None:
    parsed = parse_sampling({"reasoning_effort": "low"})
    assert (parsed.template_args, parsed.sampling) == ({"reasoning_effort": "low"}, Sampling())
    both = {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}}
    assert parse_sampling(both).template_args == {"reasoning_effort": "high"}
