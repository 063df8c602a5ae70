"""Constrained replies: texts that a grammar allows, drawn from the sampler's own words.

A grammar is a structural tag, as vLLM takes it. JSON is drawn as a value that its schema allows, and written
in one of several styles. A keyword that the drawing does not know is refused by name, never ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from attrs import define, field, frozen

from tito_io.engines.constraint import inner_schemas, resolved, schema_fault

from .reply import JSON_STYLES, TextPiece
from .rng import Rng
from .vocabulary import FOREIGN_WORDS, NOUNS, PLACES, SPECIAL, TAGS, passage, sentence, vocabulary

Format = Mapping[str, Any]
FREE = ("any_text", "any_tokens")
PARTS = ("sequence", "or")
OPTIONAL = ("optional", "star")
LINE_BREAKS = "\\n{0,2}"
"""The one regular expression that can be drawn: what may stand between reasoning and an answer."""
ANNOTATIONS = frozenset(
    (
        *("$comment", "$id", "$schema", "default", "deprecated", "description", "discriminator", "example"),
        *("examples", "format", "readOnly", "strict", "title", "writeOnly"),
    )
)
"""Keywords that demand nothing of a value."""
DRAWN = ANNOTATIONS.union(
    (
        *("$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "definitions", "enum"),
        *("exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maxLength", "maximum", "minItems"),
        *("minLength", "minimum", "oneOf", "prefixItems", "properties", "required", "type"),
    )
)
"""Keywords that are honoured."""
MOST_DRAWN = 65_536
"""Characters that `minLength` demands, and members of lists: nothing else is answered meanwhile."""
DEEPEST = 4
"""How many levels are filled in; below, a value has only what it must have."""
LIMIT = 40
"""How many levels a value may have at all: a schema that demands more has no end."""
KINDS = ("object", "array", "string", "number", "integer", "boolean", "null")


class UnsupportedGrammarError(Exception):
    """A grammar that cannot be drawn; the text says what, and where it stands."""


def check_schema(schema: object, path: str) -> None:
    """Raise `UnsupportedGrammarError` for a schema that is malformed, or demands what is not drawn."""
    fault = schema_fault(schema, path)
    if fault is not None:
        raise UnsupportedGrammarError(f"{fault.path} {fault.why}")
    _check_keywords(schema, path)


def _check_keywords(schema: object, path: str) -> None:
    if not isinstance(schema, Mapping):
        return
    unknown = sorted(schema.keys() - DRAWN)
    if isinstance(schema.get("items"), list):
        unknown.append("items")  # a list of schemas is the old form of prefixItems
    if len(schema.get("allOf", [])) > 1:
        unknown.append("allOf")
    if unknown:
        raise UnsupportedGrammarError(f"{path}.{unknown[0]} is not supported by the embedded sampler")
    for place, inner in inner_schemas(schema, path):
        _check_keywords(inner, place)


def check_grammar(grammar: object, path: str = "structural_tag") -> None:
    """Raise `UnsupportedGrammarError` for a grammar that cannot be drawn."""
    if not isinstance(grammar, Mapping):
        raise UnsupportedGrammarError(f"{path} is not an object")
    kind = grammar.get("type")
    if kind in PARTS:
        for place, part in enumerate(grammar.get("elements") or [None]):
            check_grammar(part, f"{path}.elements[{place}]")
    elif kind in OPTIONAL:
        check_grammar(grammar.get("content"), f"{path}.content")
    elif kind == "json_schema":
        check_schema(grammar.get("json_schema"), f"{path}.json_schema")
    elif not _is_drawn(grammar):
        raise UnsupportedGrammarError(f"{path} of type {kind!r:.60} is not supported by the embedded sampler")


def _is_drawn(grammar: Format) -> bool:
    """Whether a format without parts can be drawn."""
    if grammar["type"] == "token":
        return grammar.get("token") in {vocabulary().id(name) for name in (*SPECIAL, *TAGS)}
    if grammar["type"] == "const_string":
        return isinstance(grammar.get("value"), str)
    return grammar["type"] in FREE or (grammar["type"], grammar.get("pattern")) == ("regex", LINE_BREAKS)


@frozen
class Draw:
    """Draws texts that a grammar allows.

    Attributes:
        rng: Where draws come from.
        plain: Whether JSON is written as chat templates write it, not in one of several styles.
    """

    rng: Rng
    plain: bool = False

    def pieces(self, grammar: Format) -> list[TextPiece]:
        """Return the pieces of one text."""
        kind = grammar["type"]
        if kind == "sequence":
            return list(chain.from_iterable(map(self.pieces, grammar["elements"])))
        if kind == "or":
            return self.pieces(self.rng.pick(grammar["elements"]))
        if kind == "star":
            return self.pieces(grammar["content"]) if self.rng.chance(0.25) else []
        if kind == "optional":
            # What leads to the answer, such as reasoning, has been drawn by then.
            return (
                []
                if _opens_reasoning(grammar["content"]) or self.rng.chance(0.4)
                else self.pieces(grammar["content"])
            )
        return [TextPiece(self._text(grammar))]

    def _text(self, grammar: Format) -> str:
        """Return the text of a format without parts."""
        if grammar["type"] == "token":
            return str(vocabulary().tokenizer.id_to_token(grammar["token"]))
        if grammar["type"] == "const_string":
            return str(grammar["value"])
        if grammar["type"] == "regex":
            return "\n" * self.rng.between(0, 2)
        if grammar["type"] != "json_schema":
            return passage(self.rng)
        style = {} if self.plain else self.rng.pick(JSON_STYLES)
        value = ValueDraw(self.rng, grammar["json_schema"]).value(grammar["json_schema"])
        return json.dumps(value, ensure_ascii=not self.plain and self.rng.chance(0.3), **style)


def _opens_reasoning(grammar: Format) -> bool:
    first = grammar["elements"][0] if grammar["type"] == "sequence" else grammar
    return bool(first["type"] == "token" and first["token"] == vocabulary().id("<think>"))


@define
class ValueDraw:
    """Draws a value that a JSON schema allows; the schema was checked.

    Attributes:
        rng: Where draws come from.
        root: The whole schema, in which references are looked up.
        left: How many characters that `minLength` demands, and members of lists, may still be drawn.
    """

    rng: Rng
    root: Any
    left: int = field(default=MOST_DRAWN, init=False)

    def value(self, schema: Any, depth: int = 0) -> Any:
        """Return a value; raises `UnsupportedGrammarError` where every value would be endless."""
        if depth > LIMIT:
            raise UnsupportedGrammarError("the schema demands values of endless depth")
        if not isinstance(schema, Mapping) or not schema:
            return self.rng.pick(NOUNS)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.rng.pick(schema["enum"])
        if "$ref" in schema:
            return self.value(resolved(self.root, schema["$ref"]), depth + 1)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                return self.value(self._branch(schema[keyword], depth), depth + 1)
        return self._of_kind(self._kind(schema, depth), schema, depth)

    def _take(self, count: int) -> None:
        """Raise `UnsupportedGrammarError` where so much more is too much."""
        self.left -= count
        if self.left < 0:
            raise UnsupportedGrammarError(
                f"the schema demands more than {MOST_DRAWN:,} characters or values, the most that are drawn"
            )

    def _branch(self, branches: Sequence[Any], depth: int) -> Any:
        """Return one of several schemas; deep down one that ends soon."""
        soon = [
            one
            for one in branches
            if not isinstance(one, Mapping) or not one.keys() & {"$ref", "items", "properties"}
        ]
        return self.rng.pick(soon if depth > DEEPEST and soon else branches)

    def _kind(self, schema: Mapping[str, Any], depth: int) -> str:
        """Return the type of the value; that of its keywords where the schema names none."""
        named = schema.get("type")
        if isinstance(named, list):
            scalars = [kind for kind in named if kind not in ("object", "array")]
            return str(self.rng.pick(scalars if depth > DEEPEST and scalars else named))
        if named is not None:
            return str(named)
        hints = {
            "object": ("properties", "required"),
            "array": ("items", "prefixItems", "minItems", "maxItems"),
        }
        hints["integer"] = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        return next((kind for kind in hints if schema.keys() & set(hints[kind])), "string")

    def _of_kind(self, kind: str, schema: Mapping[str, Any], depth: int) -> Any:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string":
            return self._string(schema)
        if kind in ("integer", "number"):
            return self._number(kind, schema)
        return None if kind == "null" else self.rng.chance(0.5)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return an object: what is required, and half of the other properties that are described."""
        properties, required = schema.get("properties", {}), schema.get("required", [])
        drawn = [
            name for name in properties if name in required or (depth < DEEPEST and self.rng.chance(0.5))
        ]
        further = [name for name in required if name not in properties]
        described = schema.get("additionalProperties", True)
        if further and described is False:
            raise UnsupportedGrammarError(f"no object has the required {further[0]!r:.60}")
        values = {name: self.value(properties[name], depth + 1) for name in drawn}
        return {**values, **{name: self.value(described, depth + 1) for name in further}}

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        first, others = schema.get("prefixItems", []), schema.get("items", True)
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", max(least, 3))
        if others is False:
            most = min(most, len(first))
        count = least if depth > DEEPEST else self.rng.between(least, max(min(most, least + 3), least))
        self._take(count)
        schemas = [*first, *[others] * max(count - len(first), 0)][:count]
        return [self.value(one, depth + 1) for one in schemas]

    def _string(self, schema: Mapping[str, Any]) -> str:
        words = (
            self.rng.pick(NOUNS),
            self.rng.pick(PLACES),
            sentence(self.rng),
            f'"{self.rng.pick(FOREIGN_WORDS)}"',
        )
        text, least = self.rng.pick(words), schema.get("minLength", 0)
        self._take(least)
        while len(text) < least:
            text += f" {self.rng.pick(NOUNS)}"
        return text[: schema.get("maxLength", len(text))]

    def _number(self, kind: str, schema: Mapping[str, Any]) -> float | int:
        """Return a number between the bounds; a whole one where that is asked for or the bounds hold one."""
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        low = low if low is not None else (-20 if high is None else high - 100)
        high = high if high is not None else low + 2000
        first, last = math.ceil(low) + (schema.get("exclusiveMinimum") == math.ceil(low)), math.floor(high)
        last -= schema.get("exclusiveMaximum") == last
        if first <= last:
            whole = self.rng.between(first, last)
            return whole if kind == "integer" or whole >= last or self.rng.chance(0.5) else whole + 0.5
        if kind == "integer" or low > high:
            raise UnsupportedGrammarError(f"no {kind} lies between the bounds {low} and {high}")
        return float((low + high) / 2)
