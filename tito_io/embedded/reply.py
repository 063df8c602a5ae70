"""The plan of one turn: its pieces, how it ends, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from attrs import evolve, field, frozen

from .draws import FaultRates, Rng
from .prompt_view import Opening, PromptView, Tool
from .vocabulary import (
    ABROAD,
    CALL,
    CALLED,
    CLOSE,
    NOUNS,
    OVER,
    PLACES,
    THINK,
    THOUGHT,
    Vocabulary,
    passage,
    sentence,
)

WIDE = sorted({letter for word in ABROAD for letter in word if not letter.isascii()})
"""Characters of more than one byte."""


@frozen
class ReplyPlan:
    """What will be said, as text; `sampler.py` makes ids of it."""

    pieces: list[TextPiece] = field(factory=list)
    end: str | None = CLOSE
    """The token that ends it, or None for a reply that goes on for ever."""
    half: str = ""
    """A character that is begun after the pieces and not finished."""


def compose(
    scene: PromptView, dice: Rng, fault_rates: FaultRates, must_call: Sequence[Tool] = ()
) -> ReplyPlan:
    """Draw a reply to `scene`; with `must_call`, one that calls one of these tools and nothing else."""
    if must_call:
        return ReplyPlan(
            [*_thought(scene, dice, fault_rates), *calls(must_call, dice, evolve(fault_rates, malformed=0.0))]
        )
    if dice.chance(fault_rates.silent):
        return ReplyPlan()
    if dice.chance(fault_rates.runs_on):
        return _endless(scene, dice, fault_rates)
    pieces = [*_thought(scene, dice, fault_rates), *_answer(scene, dice, fault_rates)]
    return _ended(ReplyPlan(pieces), dice, fault_rates)


def _endless(scene: PromptView, dice: Rng, fault_rates: FaultRates) -> ReplyPlan:
    """Return a reply without an end: it never stops thinking, or never stops talking."""
    if scene.opening is Opening.FRESH and dice.chance(0.4):
        return ReplyPlan([TextPiece(THINK + "\n" + passage(dice, scene.heard) + " ")], end=None)
    return ReplyPlan(
        [*_thought(scene, dice, fault_rates), TextPiece(passage(dice, scene.heard) + " ")], end=None
    )


def _thought(scene: PromptView, dice: Rng, fault_rates: FaultRates) -> list[TextPiece]:
    """Return the thought: nothing, the empty one, or words between tags."""
    if scene.opening not in (Opening.FRESH, Opening.THINKING):
        return []
    before, after, behind = "\n", "\n", "\n\n"
    if dice.chance(fault_rates.loose):
        before, after = dice.pick(("", "\n\n", "\n  ", " ")), dice.pick(("", " \n", "\n\n", " "))
        behind = dice.pick(("", "\n", "\n\n\n", " "))
    said = passage(dice, scene.heard) if dice.chance(fault_rates.thinks) else ""
    opened = THINK + before if scene.opening is Opening.FRESH else ""
    return [TextPiece(opened + said + after + THOUGHT + behind)]


def _answer(scene: PromptView, dice: Rng, fault_rates: FaultRates) -> list[TextPiece]:
    """Return words, or a call with or without words before it."""
    rate = fault_rates.calls / 2 if scene.after_results else fault_rates.calls
    called = bool(scene.tools) and scene.opening is not Opening.ELSEWHERE and dice.chance(rate)
    if not called:
        return _words(scene, dice, fault_rates)
    spoken = _words(scene, dice, fault_rates) if dice.chance(0.5) else []
    between = dice.pick(("", "\n\n", " ")) if dice.chance(fault_rates.loose) else "\n"
    return [*spoken, *([TextPiece(between)] if spoken else []), *calls(scene.tools, dice, fault_rates)]


def _words(scene: PromptView, dice: Rng, fault_rates: FaultRates) -> list[TextPiece]:
    said = [TextPiece(passage(dice, scene.heard))]
    if dice.chance(fault_rates.spells_special):
        said += [
            TextPiece(" "),
            TextPiece(dice.pick((CLOSE, OVER)), spelled=True),
            TextPiece(" " + passage(dice)),
        ]
    return said


def _ended(reply: ReplyPlan, dice: Rng, fault_rates: FaultRates) -> ReplyPlan:
    """Draw how the reply ends."""
    if dice.chance(fault_rates.loose):
        reply = evolve(reply, pieces=[*reply.pieces, TextPiece(dice.pick((" ", "\n", "\n\n")))])
    if dice.chance(fault_rates.half_characters):
        reply = evolve(reply, half=dice.pick(WIDE))
    return evolve(reply, end=OVER) if dice.chance(fault_rates.odd_stops) else reply


STYLES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"indent": 2},
    {"separators": (",", ":")},
    {"separators": (" ,", " : ")},
)
DEEPEST = 4
"""How many levels of a schema are filled in; below that everything is null."""


def arguments(schema: Mapping[str, Any], dice: Rng) -> dict[str, Any]:
    """Return an object for `schema`: what it requires, half of the rest, in any order."""
    made = _object(schema, dice, 0)
    return {key: made[key] for key in dice.shuffled(list(made))}


def written(name: str, values: Mapping[str, Any], dice: Rng) -> str:
    """Return a call as JSON, spaced and escaped in one of the ways that serializers have."""
    text = json.dumps(values, ensure_ascii=dice.chance(0.3), **dice.pick(STYLES))
    return dice.pick(('{{"name": {}, "arguments": {}}}', '{{"name":{},"arguments":{}}}')).format(
        json.dumps(name), text
    )


def _object(schema: Mapping[str, Any], dice: Rng, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    kept = [key for key in properties if key in needed or dice.chance(0.5)]
    return {key: _value(properties[key], dice, depth + 1) for key in kept}


def _value(schema: Any, dice: Rng, depth: int) -> Any:
    """Return a value of the schema's type; a schema that says nothing gets a word."""
    if not isinstance(schema, dict):
        return dice.pick(NOUNS)
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return dice.pick(schema["enum"])
    kind = schema.get("type", "string")
    return _of_kind(str(kind[0] if isinstance(kind, list) and kind else kind), schema, dice, depth)


def _of_kind(kind: str, schema: Mapping[str, Any], dice: Rng, depth: int) -> Any:
    if depth > DEEPEST or kind == "null":
        return None
    if kind == "object":
        return _object(schema, dice, depth)
    if kind == "array":
        return [_value(schema.get("items"), dice, depth + 1) for _ in range(dice.between(0, 3))]
    return _scalar(kind, dice)


def _scalar(kind: str, dice: Rng) -> Any:
    if kind == "boolean":
        return dice.chance(0.5)
    if kind == "integer":
        return dice.between(-20, 2000)
    if kind == "number":
        return dice.pick((dice.between(0, 90), dice.between(0, 900) / 8, float(dice.between(0, 9)), 1e-7))
    return dice.pick(_texts(dice))


def _texts(dice: Rng) -> Sequence[str]:
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


def calls(tools: Sequence[Tool], dice: Rng, fault_rates: FaultRates) -> list[TextPiece]:
    """Return the pieces of one call, now and then of two."""
    first = _call(dice.pick(tools), dice, fault_rates)
    if not dice.chance(fault_rates.twice):
        return first
    return [*first, TextPiece("\n"), *_call(dice.pick(tools), dice, fault_rates)]


def _call(tool: Tool, dice: Rng, fault_rates: FaultRates) -> list[TextPiece]:
    spelled = dice.chance(fault_rates.spells_tags)
    body = (
        _tidy(tool, dice)
        if fault_rates.loose == 0
        else written(tool.name, arguments(tool.schema, dice), dice)
    )
    end = CALLED
    if dice.chance(fault_rates.malformed):
        body, end = dice.pick(_damages(body))
    around = dice.pick(("", " ", "\n\n")) if dice.chance(fault_rates.loose) else "\n"
    return [
        TextPiece(CALL, spelled=spelled),
        TextPiece(around + body + around),
        TextPiece(end, spelled=spelled),
    ]


def _tidy(tool: Tool, dice: Rng) -> str:
    """Return a call exactly as the template writes it back."""
    values = json.dumps(arguments(tool.schema, dice), ensure_ascii=False)
    return f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": {values}}}'


def _damages(body: str) -> Sequence[tuple[str, str]]:
    """Return the ways in which a call goes wrong: its text and what closes it."""
    return (
        (body[:-1], CALLED),
        (body[:-1] + ",}", CALLED),
        (body.replace('"', "'"), CALLED),
        (body[: len(body) // 2], ""),
        (body.replace('"arguments"', '"parameters"'), CALLED),
    )


@frozen
class TextPiece:
    """Text that becomes ids together with its neighbours, or letter by letter like ordinary text."""

    text: str
    spelled: bool = False
    """Whether a tag or a special token in it is spelled out with ordinary ids."""


def ids_of(pieces: Iterable[TextPiece], words: Vocabulary) -> list[int]:
    """Return the ids; neighbours that are not spelled out are encoded as one text, as a template's are."""
    found: list[int] = []
    for spelled, group in groupby(pieces, lambda piece: piece.spelled):
        text = "".join(piece.text for piece in group)
        found += words.spelled(text) if spelled else words.encode(text)
    return found
