"""The plan of one turn: its pieces, how it ends, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, field, frozen

from .calls import calls
from .fault_rates import Habits
from .piece import Piece
from .prompt_view import Opening, Scene, Tool
from .rng import Dice
from .speech import passage
from .vocabulary import CLOSE, OVER, THINK, THOUGHT
from .words import ABROAD

WIDE = sorted({letter for word in ABROAD for letter in word if not letter.isascii()})
"""Characters of more than one byte."""


@frozen
class Reply:
    """What will be said, as text; `sampler.py` makes ids of it."""

    pieces: list[Piece] = field(factory=list)
    end: str | None = CLOSE
    """The token that ends it, or None for a reply that goes on for ever."""
    half: str = ""
    """A character that is begun after the pieces and not finished."""


def compose(scene: Scene, dice: Dice, habits: Habits, must_call: Sequence[Tool] = ()) -> Reply:
    """Draw a reply to `scene`; with `must_call`, one that calls one of these tools and nothing else."""
    if must_call:
        return Reply([*_thought(scene, dice, habits), *calls(must_call, dice, evolve(habits, malformed=0.0))])
    if dice.chance(habits.silent):
        return Reply()
    if dice.chance(habits.runs_on):
        return _endless(scene, dice, habits)
    pieces = [*_thought(scene, dice, habits), *_answer(scene, dice, habits)]
    return _ended(Reply(pieces), dice, habits)


def _endless(scene: Scene, dice: Dice, habits: Habits) -> Reply:
    """Return a reply without an end: it never stops thinking, or never stops talking."""
    if scene.opening is Opening.FRESH and dice.chance(0.4):
        return Reply([Piece(THINK + "\n" + passage(dice, scene.heard) + " ")], end=None)
    return Reply([*_thought(scene, dice, habits), Piece(passage(dice, scene.heard) + " ")], end=None)


def _thought(scene: Scene, dice: Dice, habits: Habits) -> list[Piece]:
    """Return the thought: nothing, the empty one, or words between tags."""
    if scene.opening not in (Opening.FRESH, Opening.THINKING):
        return []
    before, after, behind = "\n", "\n", "\n\n"
    if dice.chance(habits.loose):
        before, after = dice.pick(("", "\n\n", "\n  ", " ")), dice.pick(("", " \n", "\n\n", " "))
        behind = dice.pick(("", "\n", "\n\n\n", " "))
    said = passage(dice, scene.heard) if dice.chance(habits.thinks) else ""
    opened = THINK + before if scene.opening is Opening.FRESH else ""
    return [Piece(opened + said + after + THOUGHT + behind)]


def _answer(scene: Scene, dice: Dice, habits: Habits) -> list[Piece]:
    """Return words, or a call with or without words before it."""
    rate = habits.calls / 2 if scene.after_results else habits.calls
    called = bool(scene.tools) and scene.opening is not Opening.ELSEWHERE and dice.chance(rate)
    if not called:
        return _words(scene, dice, habits)
    spoken = _words(scene, dice, habits) if dice.chance(0.5) else []
    between = dice.pick(("", "\n\n", " ")) if dice.chance(habits.loose) else "\n"
    return [*spoken, *([Piece(between)] if spoken else []), *calls(scene.tools, dice, habits)]


def _words(scene: Scene, dice: Dice, habits: Habits) -> list[Piece]:
    said = [Piece(passage(dice, scene.heard))]
    if dice.chance(habits.spells_special):
        said += [Piece(" "), Piece(dice.pick((CLOSE, OVER)), spelled=True), Piece(" " + passage(dice))]
    return said


def _ended(reply: Reply, dice: Dice, habits: Habits) -> Reply:
    """Draw how the reply ends."""
    if dice.chance(habits.loose):
        reply = evolve(reply, pieces=[*reply.pieces, Piece(dice.pick((" ", "\n", "\n\n")))])
    if dice.chance(habits.half_characters):
        reply = evolve(reply, half=dice.pick(WIDE))
    return evolve(reply, end=OVER) if dice.chance(habits.odd_stops) else reply
