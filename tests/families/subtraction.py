"""What peers do, for comparison: the difference of two renders of a dummy conversation."""

from __future__ import annotations

from collections.abc import Sequence

from tests.families.conversations import Case
from tito_core import TemplateRefused, TokenizeFn

USER = {"role": "user", "content": "Hello."}


def subtracted(case: Case, tokenize_fn: TokenizeFn) -> Sequence[int] | None:
    """Return the close, and what a render with the new messages has after one without them.

    None where the one does not begin the other. The turn before keeps its calls; the close is what two plain
    turns end with.
    """
    turn = {**case.turn, "content": "Hi."}
    try:
        shorter = list(tokenize_fn([USER, turn], add_generation_prompt=False))
        longer = list(tokenize_fn([USER, turn, *map(dict, case.environment)], add_generation_prompt=True))
        plain = [
            list(tokenize_fn([USER, {"role": "assistant", "content": text}], add_generation_prompt=False))
            for text in ("Hi.", "Well")
        ]
    except TemplateRefused:
        return None
    if longer[: len(shorter)] != shorter:
        return None
    return [*_common_end(*plain), *longer[len(shorter) :]]


def _common_end(one: Sequence[int], other: Sequence[int]) -> Sequence[int]:
    """Return the ids that both end with."""
    size = 0
    while size < min(len(one), len(other)) and one[-size - 1] == other[-size - 1]:
        size += 1
    return one[len(one) - size :]
