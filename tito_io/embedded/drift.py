"""Ids that no tokenizer gives: merges undone here and there, the text unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from .rng import Dice
from .vocabulary import Vocabulary

SHARE = 0.15
"""How many of the merged ids come apart, in a reply that drifts."""


def drifted(ids: Sequence[int], dice: Dice, words: Vocabulary) -> list[int]:
    """Return ids with the same text as `ids`, at least one of them split where any can be."""
    merged = [place for place, identifier in enumerate(ids) if identifier in words.halves]
    if not merged:
        return list(ids)
    apart = {place for place in merged if dice.chance(SHARE)} or {dice.pick(merged)}
    found: list[int] = []
    for place, identifier in enumerate(ids):
        found += _split(identifier, dice, words) if place in apart else [identifier]
    return found


def _split(identifier: int, dice: Dice, words: Vocabulary) -> list[int]:
    """Undo the last merge of an id, and of its halves now and then."""
    left, right = words.halves[identifier]
    return [part for half in (left, right) for part in _maybe(half, dice, words)]


def _maybe(identifier: int, dice: Dice, words: Vocabulary) -> list[int]:
    return (
        _split(identifier, dice, words) if identifier in words.halves and dice.chance(0.3) else [identifier]
    )
