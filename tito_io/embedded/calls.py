"""Tool calls as the sampler writes them, the broken ones too."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .arguments import arguments, written
from .fault_rates import Habits
from .piece import Piece
from .prompt_view import Tool
from .rng import Dice
from .vocabulary import CALL, CALLED


def calls(tools: Sequence[Tool], dice: Dice, habits: Habits) -> list[Piece]:
    """Return the pieces of one call, now and then of two."""
    first = _call(dice.pick(tools), dice, habits)
    if not dice.chance(habits.twice):
        return first
    return [*first, Piece("\n"), *_call(dice.pick(tools), dice, habits)]


def _call(tool: Tool, dice: Dice, habits: Habits) -> list[Piece]:
    spelled = dice.chance(habits.spells_tags)
    body = _tidy(tool, dice) if habits.loose == 0 else written(tool.name, arguments(tool.schema, dice), dice)
    end = CALLED
    if dice.chance(habits.malformed):
        body, end = dice.pick(_damages(body))
    around = dice.pick(("", " ", "\n\n")) if dice.chance(habits.loose) else "\n"
    return [Piece(CALL, spelled=spelled), Piece(around + body + around), Piece(end, spelled=spelled)]


def _tidy(tool: Tool, dice: Dice) -> str:
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
