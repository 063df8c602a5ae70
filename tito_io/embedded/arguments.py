"""Arguments made up from a JSON schema, and the many ways to write one object down."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .rng import Dice
from .speech import sentence
from .words import ABROAD, NOUNS, PLACES

STYLES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"indent": 2},
    {"separators": (",", ":")},
    {"separators": (" ,", " : ")},
)
DEEPEST = 4
"""How many levels of a schema are filled in; below that everything is null."""


def arguments(schema: Mapping[str, Any], dice: Dice) -> dict[str, Any]:
    """Return an object for `schema`: what it requires, half of the rest, in any order."""
    made = _object(schema, dice, 0)
    return {key: made[key] for key in dice.shuffled(list(made))}


def written(name: str, values: Mapping[str, Any], dice: Dice) -> str:
    """Return a call as JSON, spaced and escaped in one of the ways that serializers have."""
    text = json.dumps(values, ensure_ascii=dice.chance(0.3), **dice.pick(STYLES))
    return dice.pick(('{{"name": {}, "arguments": {}}}', '{{"name":{},"arguments":{}}}')).format(
        json.dumps(name), text
    )


def _object(schema: Mapping[str, Any], dice: Dice, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    kept = [key for key in properties if key in needed or dice.chance(0.5)]
    return {key: _value(properties[key], dice, depth + 1) for key in kept}


def _value(schema: Any, dice: Dice, depth: int) -> Any:
    """Return a value of the schema's type; a schema that says nothing gets a word."""
    if not isinstance(schema, dict):
        return dice.pick(NOUNS)
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return dice.pick(schema["enum"])
    kind = schema.get("type", "string")
    return _of_kind(str(kind[0] if isinstance(kind, list) and kind else kind), schema, dice, depth)


def _of_kind(kind: str, schema: Mapping[str, Any], dice: Dice, depth: int) -> Any:
    if depth > DEEPEST or kind == "null":
        return None
    if kind == "object":
        return _object(schema, dice, depth)
    if kind == "array":
        return [_value(schema.get("items"), dice, depth + 1) for _ in range(dice.between(0, 3))]
    return _scalar(kind, dice)


def _scalar(kind: str, dice: Dice) -> Any:
    if kind == "boolean":
        return dice.chance(0.5)
    if kind == "integer":
        return dice.between(-20, 2000)
    if kind == "number":
        return dice.pick((dice.between(0, 90), dice.between(0, 900) / 8, float(dice.between(0, 9)), 1e-7))
    return dice.pick(_texts(dice))


def _texts(dice: Dice) -> Sequence[str]:
    """Return texts of every kind that JSON has to escape, and some that it has not."""
    said = sentence(dice)
    return (
        dice.pick(PLACES),
        dice.pick(NOUNS),
        said,
        f'"{dice.pick(ABROAD)}"',
        f"{said}\n\t{said}",
        "a\\b/c",
    )
