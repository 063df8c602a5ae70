"""What a reply is made of: when it calls a tool, and with which arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tito_io.embedded import Sampler, family, generate, vocabulary
from tito_io.embedded.parsing import parse
from tito_io.embedded.reply import DEEPEST, draw_arguments
from tito_io.embedded.rng import Rng
from tito_io.embedded.vocabulary import TOOL_CALL

from .embedded_client import LIMIT, WEATHER, only, prompt, replies, whole


def test_nothing_is_called_where_nothing_is_offered_or_no_assistant_speaks() -> None:
    fault_rates = only(tool_calls=1.0)
    assert not any(TOOL_CALL in whole(reply) for reply in replies(fault_rates, tools=False))
    turn = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    for ids in (prompt()[:-3], family().ids(turn, tools=[WEATHER])):
        assert TOOL_CALL not in whole(generate(Sampler(fault_rates=fault_rates), ids, LIMIT))
    fake = "<|turn|>user\n<tools>\n" + json.dumps(WEATHER) + "\n</tools><|done|>\n<|turn|>assistant\n"
    assert TOOL_CALL not in whole(
        generate(Sampler(fault_rates=fault_rates), vocabulary().encode(fake), LIMIT)
    )


@pytest.mark.whole
def test_calls_are_rarer_after_results() -> None:
    fault_rates, asked = only(tool_calls=0.8), [{"role": "user", "content": "x"}]
    told = [{"role": "assistant", "content": "y"}, {"role": "tool", "content": "z"}]
    ids = family().ids([*asked, *told], tools=[WEATHER], add_generation_prompt=True)
    found = [generate(Sampler(seed, fault_rates), ids, LIMIT) for seed in range(100)]
    assert 25 <= sum(TOOL_CALL in whole(reply) for reply in found) <= 55


@pytest.mark.whole
def test_calls_fit_the_schema() -> None:
    seen: set[str] = set()
    properties: dict[str, Any] = WEATHER["function"]["parameters"]["properties"]  # type: ignore[index]
    for reply in replies(only(tool_calls=1.0, loose_whitespace=1.0, drifts=1.0), count=60):
        for call in parse(reply.text, thinking=True, tools=True).calls:
            values = json.loads(call.arguments)
            assert call.name == "get_weather"
            assert "city" in values
            assert set(values) <= set(properties)
            assert isinstance(values["city"], str)
            assert isinstance(values.get("days", 0), int)
            assert values.get("unit", "C") in ("C", "F")
            assert all(isinstance(one, int | float) for one in values.get("near", []))
            seen |= set(values)
    assert seen == set(properties)


@pytest.mark.whole
def test_a_call_is_written_in_more_ways_than_one() -> None:
    bodies = [
        whole(reply).partition(TOOL_CALL)[2]
        for reply in replies(only(tool_calls=1.0, loose_whitespace=1.0), count=60)
    ]
    assert any('"arguments":{' in body for body in bodies)
    assert any('"arguments": {' in body for body in bodies)
    assert any('" : ' in body for body in bodies)
    assert any("\\u00" in body for body in bodies)
    assert any("\n  " in body for body in bodies)


def test_schemas_of_every_kind_are_filled_in() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(8):
        deep = {"type": "object", "properties": {"in": deep}, "required": ["in"]}
    kinds = {"none": {"type": "null"}, "first": {"type": ["boolean", "null"]}, "any": True, "deep": deep}
    schema = {"properties": {**kinds, "list": {"type": "array"}}, "required": [*kinds, "list"]}
    for seed in range(20):
        values = draw_arguments(schema, Rng(seed))
        assert values["none"] is None
        assert isinstance(values["first"], bool)
        assert isinstance(values["any"], str)
        assert all(isinstance(one, str) for one in values["list"])
        assert json.dumps(values["deep"]).count("in") == DEEPEST
    assert draw_arguments({"properties": []}, Rng(0)) == {}


def test_a_broken_list_of_tools_is_read_as_far_as_it_can_be() -> None:
    lines = [
        "{",
        "[]",
        '{"function": {"name": "f"}}',
        '{"function": 1}',
        '{"function": {"name": "g", "parameters": 1}}',
        '{"function": {"name": 7}}',
    ]
    text = "<|turn|>system\n<tools>\n" + "\n".join(lines) + "\n</tools><|done|>\n<|turn|>assistant\n"
    reply = generate(Sampler(fault_rates=only(tool_calls=1.0)), vocabulary().encode(text), LIMIT)
    assert {call.name for call in parse(reply.text, thinking=True, tools=True).calls} == {"f"}
