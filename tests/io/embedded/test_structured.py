"""Constrained replies keep to their grammar, and what cannot be drawn is refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator

from tito_io.embedded import TIDY, FaultRates, Sampler, SamplingSettings, generate, vocabulary
from tito_io.embedded.parsing import parse
from tito_io.embedded.rng import Rng
from tito_io.embedded.structured import DRAWN, UnsupportedGrammarError, ValueDraw, check_grammar, check_schema
from tito_io.embedded.vocabulary import TOOL_CALL

from .embedded_client import HELLO, WEATHER, client, post, prompt

pytestmark = pytest.mark.anyio

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
SCHEMAS: dict[str, Any] = {
    "strings": {"type": "string", "minLength": 30, "maxLength": 40},
    "enum": {"enum": ["a", 1, None, [2]]},
    "const": {"const": {"a": [1]}},
    "integers": {"type": "integer", "minimum": 3, "exclusiveMaximum": 5},
    "above": {"type": "integer", "exclusiveMinimum": 2.5},
    "numbers": {"type": "number", "minimum": 0.25, "maximum": 0.75},
    "between": {"type": "number", "exclusiveMinimum": 1, "maximum": 2},
    "booleans": {"type": ["boolean", "null"]},
    "arrays": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
    "tuples": {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "null"}],
        "items": False,
        "minItems": 2,
    },
    "objects": {
        "type": "object",
        "properties": {
            "a": {"type": "number"},
            "b": {"type": "object", "properties": {"c": {}}, "required": ["c"]},
        },
        "required": ["b", "z"],
    },
    "closed": {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False},
    "described": {"required": ["k"], "additionalProperties": {"type": "integer"}},
    "either": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["a"]}], "title": "Either"},
    "all": {"allOf": [{"$ref": "#/definitions/n"}], "definitions": {"n": {"type": "integer"}}},
    "tree": TREE,
    "anything": {},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_values_keep_to_their_schema(name: str) -> None:
    check_schema(SCHEMAS[name], "schema")
    judge = Draft202012Validator(SCHEMAS[name])
    for seed in range(60):
        value = ValueDraw(Rng(seed), SCHEMAS[name]).value(SCHEMAS[name])
        judge.validate(json.loads(json.dumps(value)))


def test_every_keyword_that_is_honoured_is_tried() -> None:
    def keywords(schema: Any) -> Iterator[str]:
        for name, held in schema.items() if isinstance(schema, dict) else ():
            yield name
            inner = held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
            for one in (held, *inner):
                yield from keywords(one)

    tried = set(keywords(SCHEMAS))
    assert {"anyOf", "$ref", "$defs", "const", "enum", "items", "required", "prefixItems"} <= tried & DRAWN


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string", "pattern": "a+"}, "schema.pattern is not supported"),
        ({"properties": {"a": {"multipleOf": 2}}}, "schema.properties.a.multipleOf is not supported"),
        ({"anyOf": [{}, {"not": {}}]}, r"schema.anyOf\[1\].not is not supported"),
        ({"allOf": [{}, {}]}, "schema.allOf is not supported"),
        ({"items": [{}]}, "schema.items is not supported"),
        ({"type": "text"}, "schema.type is not one of"),
        ({"$ref": "#/$defs/x"}, r"schema.\$ref names nothing"),
        ({"$ref": "http://x"}, r"schema.\$ref names nothing"),
        ([], "schema is not a JSON schema"),
    ],
)
def test_what_cannot_be_drawn_is_named(schema: Any, text: str) -> None:
    with pytest.raises(UnsupportedGrammarError, match=text):
        check_schema(schema, "schema")


@pytest.mark.parametrize(
    "grammar",
    [
        None,
        {"type": "regex", "pattern": "a+"},
        {"type": "token", "token": 7},
        {"type": "sequence", "elements": [{"type": "grammar"}]},
        {"type": "star", "content": {"type": "json_schema", "json_schema": {"not": {}}}},
    ],
)
def test_a_grammar_that_cannot_be_drawn_is_refused(grammar: Any) -> None:
    with pytest.raises(UnsupportedGrammarError, match="structural_tag"):
        check_grammar(grammar)


@pytest.mark.parametrize("rates", [TIDY, FaultRates(), FaultRates(drifts=1.0, reasoning=1.0)])
def test_ids_spell_the_json_whatever_else_errs(rates: FaultRates) -> None:
    schema = SCHEMAS["objects"]
    sampling = SamplingSettings(max_tokens=4000, grammar={"type": "json_schema", "json_schema": schema})
    for seed in range(30):
        reply = generate(Sampler(seed, rates), prompt(), sampling)
        content = parse(reply.text, thinking=True, tools=False).content
        Draft202012Validator(schema).validate(json.loads(content or ""))
        assert reply.text.startswith(vocabulary().decode(reply.ids[:-1])[:40])
        assert reply.finish_reason == "stop"


@pytest.mark.parametrize(
    "fields", [{"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}]
)
async def test_both_routes_take_a_schema(fields: dict[str, Any]) -> None:
    ids = prompt()
    async with client(max_new_tokens=None) as opened:
        chat = await post(opened, CHAT, {"messages": HELLO, "max_tokens": 900, **fields})
        text = await post(opened, COMPLETIONS, {"prompt": ids, "max_tokens": 900, **fields})
    assert isinstance(json.loads(chat["choices"][0]["message"]["content"]), dict)
    assert isinstance(
        json.loads(parse(text["choices"][0]["text"], thinking=True, tools=False).content or ""), dict
    )


async def test_a_forced_call_keeps_to_the_tool() -> None:
    judge = Draft202012Validator(WEATHER["function"]["parameters"])  # type: ignore[index]  # a dict of dicts
    async with client(max_new_tokens=None, fault_rates=evolve(FaultRates(), malformed=1.0)) as opened:
        for seed in range(20):
            body = {"messages": HELLO, "tools": [WEATHER], "tool_choice": "required", "seed": seed}
            choice = (await post(opened, CHAT, {**body, "return_token_ids": True}))["choices"][0]
            calls = choice["message"]["tool_calls"]
            assert choice["token_ids"].count(vocabulary().id(TOOL_CALL)) == len(calls)
            for call in calls:
                judge.validate(json.loads(call["function"]["arguments"]))
