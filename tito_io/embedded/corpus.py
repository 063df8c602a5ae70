"""The text that the tokenizer is trained on: written here, the same on every run.

Prose, JSON, code, punctuation and scripts other than Latin, so that the merges are of every kind that hurts:
words with their space, quotes with their colon, closing braces with their newline, halves of characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from .rng import Dice
from .speech import sentence
from .words import ABROAD, CODE, COMMON, KEYS, NOUNS, PLACES, TURN

PASSAGES = 260


def corpus() -> Iterator[str]:
    """Yield every passage, about 54 thousand characters in all."""
    dice = Dice("corpus")
    yield from TURN
    yield " ".join(COMMON * 3)
    for index in range(PASSAGES):
        yield " ".join(sentence(dice) for _ in range(2)) + "\n\n"
        yield _record(dice)
        if index % 4 == 0:
            yield dice.pick(CODE)
            yield f"{index}. {dice.pick(NOUNS)} - {dice.between(0, 9999)}; "
            yield f"{dice.pick(ABROAD)}, {dice.pick(PLACES)}\n"


def _record(dice: Dice) -> str:
    """Return one JSON object as an engine or a client would write it."""
    keys = [dice.pick(KEYS) for _ in range(3)]
    values = [dice.pick(PLACES), dice.between(0, 500), {"type": dice.pick(KEYS), "items": [dice.pick(NOUNS)]}]
    record = dict(zip(keys, values, strict=True))
    return json.dumps(record, ensure_ascii=False, indent=2 if dice.chance(0.2) else None) + "\n"
