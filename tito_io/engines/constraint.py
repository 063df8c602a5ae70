"""Constraints: what a turn may say and which tools it calls, for every engine.

A constraint binds the answer, never the reasoning before it. Engines mask what is sampled by it, so that the
ids are not the model's free choice; the prompt's ids stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from tito_core import InputError, Message

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords of JSON Schema that hold schemas by name."""
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
"""Keywords that hold lists of schemas."""
SINGLE = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
"""Keywords that hold one schema."""
DEEPEST = 64
"""How many levels of schemas are read. Engines take fewer; a deeper one could exhaust the stack."""
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@attrs.frozen(kw_only=True)
class Constraint:
    """A limit on what may be sampled as the answer of a turn.

    Attributes:
        schema: A JSON schema for the whole content; None for any text. Where tools are offered and no call is
            demanded, the turn may call tools in place of such a content.
        must_call: Names of tools, of which the turn calls one or more and says nothing else. Empty for any
            tool; None where no call is demanded.
        may_call: Names of the only tools that a turn may call of which no call is demanded; None for any.
        one_call: Whether the turn calls at most one tool, once.
    """

    schema: Mapping[str, Any] | None = None
    must_call: tuple[str, ...] | None = None
    may_call: tuple[str, ...] | None = None
    one_call: bool = False

    @property
    def callable(self) -> tuple[str, ...]:
        """The names of the only tools that may be called; empty for any.

        >>> Constraint(may_call=("look",)).callable, Constraint(one_call=True).callable
        (('look',), ())
        """
        return self.must_call or self.may_call or ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is constrained, in words for counts: `json`, `call`, `allowed` and `one-call`.

        >>> Constraint(must_call=("look",), one_call=True).kinds
        ('call', 'allowed', 'one-call')
        """
        found = {
            "json": self.schema is not None,
            "call": self.must_call is not None,
            "allowed": bool(self.callable),
            "one-call": self.one_call,
        }
        return tuple(kind for kind, holds in found.items() if holds)

    def among(self, tools: Sequence[Mapping[str, Any]]) -> Constraint | None:
        """Return what is left to constrain where these tools are offered; None where nothing is left.

        Raises:
            InputError: A call is demanded or allowed of a tool that is not offered.

        >>> Constraint(one_call=True).among([])
        >>> Constraint(may_call=("f",)).among([{"type": "function", "function": {"name": "f"}}])
        """
        names = [tool_name(tool) for tool in tools]
        absent = sorted(set(self.callable).difference(names))
        if absent:
            raise InputError(f"tool_choice: {absent[0]!r:.60} is not one of the tools; name one of them")
        if self.must_call is not None and not names:
            raise InputError("tool_choice: a call is demanded, and there are no tools; pass `tools`")
        left = self if names else attrs.evolve(self, one_call=False)
        if set(names) == set(self.may_call or ()):
            left = attrs.evolve(left, may_call=None)
        return None if left == Constraint() else left

    def unmet(self, message: Message) -> str | None:
        """Return what a finished turn lacks; None where it keeps to the constraint as far as is checked.

        Of a schema, it is checked that the content is JSON, and an object where the schema wants one.

        >>> Constraint(one_call=True).unmet({"role": "assistant", "content": "hi"})
        >>> Constraint(schema={"type": "object"}).unmet({"role": "assistant", "content": "hi"})
        'its content is not the JSON that was demanded'
        """
        called = [call["function"]["name"] for call in message.get("tool_calls") or ()]
        if self.must_call is not None and not called:
            return "it calls no tool, and a call was demanded"
        if self.callable and not set(called) <= set(self.callable):
            return "it calls another tool than was demanded or allowed"
        if self.one_call and len(called) > 1:
            return "it calls more than one tool, and at most one call was allowed"
        if self.schema is not None and not called and not _fits(message.get("content"), self.schema):
            return "its content is not the JSON that was demanded"
        return None


def tool_name(tool: Mapping[str, Any]) -> str:
    """Return the name of a tool in OpenAI's form; empty where it has none."""
    function = tool.get("function")
    return str(function.get("name") or "") if isinstance(function, Mapping) else ""


def tool_schema(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments; that of any object where it has none.

    >>> tool_schema({"type": "function", "function": {"name": "f"}})
    {'type': 'object'}
    """
    function = tool.get("function")
    schema = function.get("parameters") if isinstance(function, Mapping) else None
    return schema if isinstance(schema, Mapping) and schema else ANY_OBJECT


def _fits(content: object, schema: Mapping[str, Any]) -> bool:
    try:
        value = json.loads(content) if isinstance(content, str) else None
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) if schema.get("type") == "object" else isinstance(content, str)


@attrs.frozen
class SchemaFault:
    """A malformed keyword in a JSON schema.

    Attributes:
        path: Where it stands.
        why: What is wrong with it.
    """

    path: str
    why: str


def schema_fault(schema: object, path: str) -> SchemaFault | None:
    """Return the first malformed keyword of a JSON schema that stands at `path`; None where all are right.

    Keywords that are unknown here are the engine's to judge.

    >>> schema_fault({"type": "object", "required": "a"}, "schema")
    SchemaFault(path='schema.required', why='is not a list of names')
    """
    return next(_faults(schema, path, schema, DEEPEST), None)


def _faults(schema: object, path: str, root: object, depth: int) -> Iterator[SchemaFault]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        yield SchemaFault(path, "is not a JSON schema, which is an object")
        return
    if not depth:
        yield SchemaFault(path, f"nests deeper than {DEEPEST} levels")
        return
    yield from _keyword_faults(schema, path, root)
    for place, inner in inner_schemas(schema, path):
        yield from _faults(inner, place, root, depth - 1)


def inner_schemas(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, object]]:
    """Yield the schemas in a schema, with their paths."""
    for keyword in NAMED:
        named = schema.get(keyword)
        for name, inner in named.items() if isinstance(named, Mapping) else ():
            yield f"{path}.{keyword}.{name}", inner
    for keyword in (*LISTED, "items"):
        listed = schema.get(keyword)
        for place, inner in enumerate(listed if isinstance(listed, list) else ()):
            yield f"{path}.{keyword}[{place}]", inner
    for keyword in SINGLE:
        if keyword in schema and not isinstance(schema[keyword], list):
            yield f"{path}.{keyword}", schema[keyword]


def _keyword_faults(schema: Mapping[str, Any], path: str, root: object) -> Iterator[SchemaFault]:
    kinds = schema.get("type", "object")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if not kinds or not all(isinstance(kind, str) and kind in TYPES for kind in kinds):
        yield SchemaFault(f"{path}.type", f"is not one of {', '.join(TYPES)}")
    for keyword in ("enum", *LISTED):
        if keyword in schema and not (isinstance(schema[keyword], list) and schema[keyword]):
            yield SchemaFault(f"{path}.{keyword}", "is not a list with entries")
    for keyword in NAMED:
        if keyword in schema and not isinstance(schema[keyword], Mapping):
            yield SchemaFault(f"{path}.{keyword}", "is not an object")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield SchemaFault(f"{path}.required", "is not a list of names")
    if "$ref" in schema and resolved(root, schema["$ref"]) is None:
        yield SchemaFault(f"{path}.$ref", "names nothing in this schema")


def resolved(root: object, reference: object) -> Mapping[str, Any] | bool | None:
    """Return the schema that a `$ref` within the same schema names; None where it names nothing.

    >>> resolved({"$defs": {"a/b": {"type": "null"}}}, "#/$defs/a~1b")
    {'type': 'null'}
    """
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found = root
    for part in filter(None, reference[1:].split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping | bool) else None
