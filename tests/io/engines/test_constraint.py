"""What a finished turn has to be, and which schemas are malformed."""

from __future__ import annotations

from typing import Any

import pytest

from tito_io.engines.constraint import DEEPEST, Constraint, resolved, schema_fault, tool_name, tool_schema

SAID: dict[str, Any] = {"role": "assistant", "content": "hi"}
OBJECT = {"type": "object"}


def calling(*names: str) -> dict[str, Any]:
    """Return a turn that calls these tools."""
    return {**SAID, "content": "", "tool_calls": [{"id": "a", "function": {"name": name}} for name in names]}


def saying(content: object) -> dict[str, Any]:
    return {**SAID, "content": content}


@pytest.mark.parametrize(
    ("constraint", "message", "lack"),
    [
        (Constraint(), SAID, None),
        (Constraint(must_call=()), calling("a", "b"), None),
        (Constraint(must_call=()), SAID, "it calls no tool"),
        (Constraint(must_call=("a",)), calling("a", "a"), None),
        (Constraint(must_call=("a",)), calling("a", "b"), "another tool"),
        (Constraint(may_call=("a", "b")), calling("b", "a"), None),
        (Constraint(may_call=("a", "b")), SAID, None),
        (Constraint(may_call=("a", "b")), calling("a", "c"), "another tool"),
        (Constraint(one_call=True), calling("a"), None),
        (Constraint(one_call=True), SAID, None),
        (Constraint(one_call=True), calling("a", "a"), "more than one tool"),
        (Constraint(schema=OBJECT), saying(' {"a": 1}\n'), None),
        (Constraint(schema=OBJECT), saying("[1]"), "not the JSON"),
        (Constraint(schema=OBJECT), saying('{"a": '), "not the JSON"),
        (Constraint(schema=OBJECT), saying(None), "not the JSON"),
        (Constraint(schema=OBJECT), saying([{"type": "text", "text": "{}"}]), "not the JSON"),
        (Constraint(schema={"enum": [1, None]}), saying("null"), None),
        (Constraint(schema=OBJECT), calling("a"), None),
        (Constraint(schema=OBJECT), saying("[" * 10_000), "not the JSON"),
    ],
)
def test_a_turn_that_lacks_something_is_found(
    constraint: Constraint, message: dict[str, Any], lack: str | None
) -> None:
    found = constraint.unmet(message)
    assert found is None if lack is None else lack in (found or "")


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ([], "s"),
        (None, "s"),
        ({"type": "text"}, "s.type"),
        ({"type": []}, "s.type"),
        ({"type": [1]}, "s.type"),
        ({"enum": []}, "s.enum"),
        ({"anyOf": {}}, "s.anyOf"),
        ({"properties": []}, "s.properties"),
        ({"required": ["a", 1]}, "s.required"),
        ({"$ref": "#/$defs/a", "$defs": {"b": {}}}, "s.$ref"),
        ({"properties": {"a": {"items": {"type": 1}}}}, "s.properties.a.items.type"),
        ({"oneOf": [True, 3]}, "s.oneOf[1]"),
        ({"items": [{}, {"not": 1}]}, "s.items[1].not"),
        ({"additionalProperties": {"enum": 1}}, "s.additionalProperties.enum"),
        (nested(DEEPEST + 1), "s" + ".items" * DEEPEST),
    ],
)
def test_the_first_malformed_keyword_is_named(schema: object, path: str) -> None:
    fault = schema_fault(schema, "s")
    assert fault is not None
    assert fault.path == path


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        nested(DEEPEST - 1),
        {"type": ["string", "null"], "x-own": {"type": "what"}},
        {"$ref": "#", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_well_formed_schema_has_no_fault(schema: object) -> None:
    assert schema_fault(schema, "s") is None


def test_a_reference_may_escape_its_names() -> None:
    root = {"$defs": {"a/b": {"~": True}}}
    assert resolved(root, "#/$defs/a~1b/~0") is True
    assert resolved(root, "#/$defs/a~1b/~0/c") is None
    assert resolved(root, 7) is None


def test_a_tool_without_a_function_has_no_name_and_takes_any_object() -> None:
    assert (tool_name({"function": 1}), tool_schema({"function": 1})) == ("", OBJECT)
    assert tool_schema({"function": {"parameters": []}}) == OBJECT
