"""Sentences without meaning: what the sampler says when it has nothing to call."""

from __future__ import annotations

from collections.abc import Sequence

from .rng import Dice
from .words import ABROAD, ADJECTIVES, CODE, NOUNS, OPENERS, VERBS

ECHOED = 0.5
FOREIGN = 0.35


def sentence(dice: Dice, heard: Sequence[str] = ()) -> str:
    """Return one sentence, half the time around a word that was `heard` in the prompt."""
    parts = [dice.pick(OPENERS) + ", the"] if dice.chance(0.4) else ["The"]
    parts += [dice.pick(ADJECTIVES), dice.pick(NOUNS), dice.pick(VERBS), "the"]
    if heard and dice.chance(ECHOED):
        parts += [dice.pick(heard), "and the"]
    parts.append(dice.pick(NOUNS))
    if dice.chance(FOREIGN):
        parts += ["of", dice.pick(ABROAD)]
    return " ".join(parts) + dice.pick((".", ".", ".", "!", "?", ";", "..."))


def passage(dice: Dice, heard: Sequence[str] = ()) -> str:
    """Return a few sentences, now and then with a list or a piece of code after them."""
    between = dice.pick((" ", " ", "\n", "\n\n"))
    text = between.join(sentence(dice, heard) for _ in range(dice.between(1, 3)))
    if dice.chance(0.12):
        text += "\n\n" + dice.pick(CODE).rstrip("\n")
    elif dice.chance(0.12):
        text += "\n" + "\n".join(f"- {dice.pick(NOUNS)}: {dice.between(0, 999)}" for _ in range(3))
    return text
