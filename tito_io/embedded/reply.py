"""Plan a reply: read what the prompt's ids allow, then draw reasoning, text, tool calls and an end.

Only the ids are read, so that every route shows the sampler the same prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import groupby
from typing import Any

from attrs import evolve, field, frozen

from .rng import FaultRates, Rng
from .vocabulary import (
    END_OF_TEXT,
    END_OF_TURN,
    END_THINK,
    END_TOOL_CALL,
    FOREIGN_WORDS,
    NOUNS,
    PLACES,
    START_OF_TURN,
    THINK,
    TOOL_CALL,
    Vocabulary,
    passage,
    sentence,
)

ECHO_REACH = 400
"""How many characters at the end of the turn before are read for words to repeat."""
TOOLS = re.compile(r"<tools>\n(.*)\n</tools>", re.DOTALL)
WORD = re.compile(r"[^\W\d_]{4,}")


class Position(Enum):
    """The part of a turn in which the prompt ends."""

    TURN_START = "an assistant turn without any content yet"
    REASONING = "reasoning that is not closed"
    ANSWER = "an assistant turn past its reasoning, or somewhere in its text"
    OUTSIDE = "not in an assistant turn"


@frozen
class Tool:
    """A function that may be called, with the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any]


@frozen
class PromptView:
    """The facts that the sampler reads from a prompt."""

    position: Position
    tools: tuple[Tool, ...]
    echoed: tuple[str, ...]
    """Words of four letters or more from the turn before: some are repeated in the reply."""
    after_results: bool
    """Whether the turn before is a tool result."""


def read_prompt(ids: Sequence[int], words: Vocabulary) -> PromptView:
    """Read a prompt; any ids will do. Tools that cannot be read are left out."""
    start = _last(ids, words.id(START_OF_TURN), len(ids))
    if start < 0:
        return PromptView(Position.OUTSIDE, (), _echoed(words.decode(ids)), after_results=False)
    before = _last(ids, words.id(START_OF_TURN), start)
    role, _, text = words.decode(ids[before + 1 : start]).partition("\n")
    position = _position(ids[start + 1 :], words)
    return PromptView(position, _tools(ids, words), _echoed(text), after_results=role == "tool")


def _last(ids: Sequence[int], identifier: int, stop: int) -> int:
    """Return the last place of `identifier` before `stop`, or -1."""
    return next((place for place in range(stop - 1, -1, -1) if ids[place] == identifier), -1)


def _position(turn: Sequence[int], words: Vocabulary) -> Position:
    """Return the position in a turn that was begun, by its role and its thinking tags."""
    text = words.decode(turn)
    if not text.startswith("assistant\n") or words.id(END_OF_TURN) in turn:
        return Position.OUTSIDE
    if text == "assistant\n":
        return Position.TURN_START
    inside = _last(turn, words.id(THINK), len(turn)) > _last(turn, words.id(END_THINK), len(turn))
    return Position.REASONING if inside else Position.ANSWER


def _echoed(text: str) -> tuple[str, ...]:
    return tuple(WORD.findall(text[-ECHO_REACH:].replace(END_OF_TURN, " ")))


def _tools(ids: Sequence[int], words: Vocabulary) -> tuple[Tool, ...]:
    """Read the tools from the first turn, if that is a system turn which lists some."""
    if ids[0] != words.id(START_OF_TURN) or words.id(END_OF_TURN) not in ids:
        return ()
    text = words.decode(ids[: list(ids).index(words.id(END_OF_TURN))])
    listed = TOOLS.search(text) if text.startswith(START_OF_TURN + "system\n") else None
    tools = []
    for line in listed.group(1).split("\n") if listed else ():
        # What describes no function is no tool.
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            function = json.loads(line)["function"]
            name, schema = function["name"], function.get("parameters") or {}
            if isinstance(name, str) and isinstance(schema, dict):
                tools.append(Tool(name, schema))
    return tuple(tools)


@frozen
class TextPiece:
    """Text of a reply that becomes ids together with its neighbours."""

    text: str
    spelled: bool = False
    """Whether tags and special tokens in the text are spelled out in ordinary ids."""


def ids_of(pieces: Iterable[TextPiece], words: Vocabulary) -> list[int]:
    """Return the ids of pieces; neighbours are encoded as one text, as a chat template's texts are."""
    ids: list[int] = []
    for spelled, group in groupby(pieces, lambda piece: piece.spelled):
        text = "".join(piece.text for piece in group)
        ids += words.spell_out(text) if spelled else words.encode(text)
    return ids


@frozen
class ReplyPlan:
    """A reply as text, before the sampler turns it into ids."""

    pieces: list[TextPiece] = field(factory=list)
    end: str | None = END_OF_TURN
    """The token that ends the reply; None for a reply without end."""
    half: str = ""
    """A character that is begun after the pieces and not completed."""


MULTIBYTE = sorted({letter for word in FOREIGN_WORDS for letter in word if not letter.isascii()})


def plan_reply(
    view: PromptView, rng: Rng, rates: FaultRates, answer: Sequence[TextPiece] | None = None
) -> ReplyPlan:
    """Draw a reply to a prompt; with `answer`, one that says exactly that after its reasoning."""
    if answer is not None:
        end = END_OF_TEXT if rng.chance(rates.odd_stops) else END_OF_TURN
        return ReplyPlan([*_reasoning(view, rng, rates), *answer], end=end)
    if rng.chance(rates.empty):
        return ReplyPlan()
    if rng.chance(rates.endless):
        # Without end: in its reasoning, or in its text.
        thinks = view.position is Position.TURN_START and rng.chance(0.4)
        begun = [TextPiece(THINK + "\n")] if thinks else _reasoning(view, rng, rates)
        return ReplyPlan([*begun, TextPiece(passage(rng, view.echoed) + " ")], end=None)
    reply = ReplyPlan([*_reasoning(view, rng, rates), *_answer(view, rng, rates)])
    if rng.chance(rates.loose_whitespace):
        reply = evolve(reply, pieces=[*reply.pieces, TextPiece(rng.pick((" ", "\n", "\n\n")))])
    if rng.chance(rates.half_characters):
        reply = evolve(reply, half=rng.pick(MULTIBYTE))
    return evolve(reply, end=END_OF_TEXT) if rng.chance(rates.odd_stops) else reply


def _reasoning(view: PromptView, rng: Rng, rates: FaultRates) -> list[TextPiece]:
    """Return the reasoning with its tags: empty or with text, or nothing where the prompt is past it."""
    if view.position not in (Position.TURN_START, Position.REASONING):
        return []
    before, after, behind = "\n", "\n", "\n\n"
    if rng.chance(rates.loose_whitespace):
        before, after = rng.pick(("", "\n\n", "\n  ", " ")), rng.pick(("", " \n", "\n\n", " "))
        behind = rng.pick(("", "\n", "\n\n\n", " "))
    text = passage(rng, view.echoed) if rng.chance(rates.reasoning) else ""
    opening = THINK + before if view.position is Position.TURN_START else ""
    return [TextPiece(opening + text + after + END_THINK + behind)]


def _answer(view: PromptView, rng: Rng, rates: FaultRates) -> list[TextPiece]:
    """Return text, or one or two tool calls with or without text before them."""
    rate = rates.tool_calls / 2 if view.after_results else rates.tool_calls
    if not view.tools or view.position is Position.OUTSIDE or not rng.chance(rate):
        return _text(view, rng, rates)
    text = _text(view, rng, rates) if rng.chance(0.5) else []
    between = rng.pick(("", "\n\n", " ")) if rng.chance(rates.loose_whitespace) else "\n"
    calls = _tool_call(rng.pick(view.tools), rng, rates)
    if rng.chance(rates.second_calls):
        calls += [TextPiece("\n"), *_tool_call(rng.pick(view.tools), rng, rates)]
    return [*text, *([TextPiece(between)] if text else []), *calls]


def _text(view: PromptView, rng: Rng, rates: FaultRates) -> list[TextPiece]:
    text = [TextPiece(passage(rng, view.echoed))]
    if rng.chance(rates.spells_special):
        special = TextPiece(rng.pick((END_OF_TURN, END_OF_TEXT)), spelled=True)
        text += [TextPiece(" "), special, TextPiece(" " + passage(rng))]
    return text


def _tool_call(tool: Tool, rng: Rng, rates: FaultRates) -> list[TextPiece]:
    spelled, end = rng.chance(rates.spells_tags), END_TOOL_CALL
    body = _call_json(tool, rng, as_template=rates.loose_whitespace == 0)
    if rng.chance(rates.malformed):
        half, renamed = body[: len(body) // 2], body.replace('"arguments"', '"parameters"')
        body = rng.pick((body[:-1], body[:-1] + ",}", body.replace('"', "'"), half, renamed))
        end = "" if body == half else END_TOOL_CALL
    around = rng.pick(("", " ", "\n\n")) if rng.chance(rates.loose_whitespace) else "\n"
    opening, closing = TextPiece(TOOL_CALL, spelled=spelled), TextPiece(end, spelled=spelled)
    return [opening, TextPiece(around + body + around), closing]


SPACINGS: tuple[dict[str, Any], ...] = ({"separators": (",", ":")}, {"separators": (" ,", " : ")})
JSON_STYLES: tuple[dict[str, Any], ...] = ({}, {}, {"indent": 2}, *SPACINGS)


def _call_json(tool: Tool, rng: Rng, *, as_template: bool) -> str:
    """Return a call as the chat template writes it back, or in another spacing and escaping of JSON."""
    values = draw_arguments(tool.schema, rng)
    if as_template:
        return json.dumps({"name": tool.name, "arguments": values}, ensure_ascii=False)
    text = json.dumps(values, ensure_ascii=rng.chance(0.3), **rng.pick(JSON_STYLES))
    form = rng.pick(('{{"name": {}, "arguments": {}}}', '{{"name":{},"arguments":{}}}'))
    return form.format(json.dumps(tool.name), text)


DEEPEST = 4
"""How many levels of a schema are filled in; everything below is null."""


def draw_arguments(schema: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
    """Return an object for a JSON schema: what it requires, half of its other properties, in any order."""
    values = _object(schema, rng, 0)
    return {key: values[key] for key in rng.shuffled(list(values))}


def _object(schema: Mapping[str, Any], rng: Rng, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    drawn = [key for key in properties if key in needed or rng.chance(0.5)]
    return {key: _value(properties[key], rng, depth + 1) for key in drawn}


def _value(schema: Any, rng: Rng, depth: int) -> Any:
    """Return a value of the schema's type; a noun where the schema is not an object."""
    if not isinstance(schema, dict):
        return rng.pick(NOUNS)
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return rng.pick(schema["enum"])
    kind = schema.get("type", "string")
    kind = str(kind[0] if isinstance(kind, list) and kind else kind)
    if depth > DEEPEST or kind == "null":
        return None
    if kind == "object":
        return _object(schema, rng, depth)
    if kind == "array":
        return [_value(schema.get("items"), rng, depth + 1) for _ in range(rng.between(0, 3))]
    return _scalar(kind, rng)


def _scalar(kind: str, rng: Rng) -> Any:
    if kind == "boolean":
        return rng.chance(0.5)
    if kind == "integer":
        return rng.between(-20, 2000)
    if kind == "number":
        return rng.pick((rng.between(0, 90), rng.between(0, 900) / 8, float(rng.between(0, 9)), 1e-7))
    # Strings with everything that JSON escapes, and what some serializers escape and others do not.
    text, place, noun = sentence(rng), rng.pick(PLACES), rng.pick(NOUNS)
    quoted = f'"{rng.pick(FOREIGN_WORDS)}"'
    return rng.pick((place, noun, text, quoted, f"{text}\n\t{text}", "a\\b/c"))
