"""Ids with their texts."""

from __future__ import annotations

from collections.abc import Sequence

from tito_io.families.family import Family

from .report import Token

LONGEST = 120
"""No token that a person should read is longer."""


def tokens(family: Family, ids: Sequence[int]) -> tuple[Token, ...]:
    """Return ids with what each prints; half a character prints as the vocabulary's own name for it."""
    return tuple(Token(index, _text(family, index)) for index in ids)


def _text(family: Family, index: int) -> str:
    text = family.decode([index])
    broken = not text or "\ufffd" in text
    named = family.tokenizer.id_to_token(index) if broken else None
    shown = text if named is None else named
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
