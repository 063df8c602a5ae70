"""Check whether a turn that an engine calls finished has its stop token.

Some servers cut the stop token off its ids, its log-probabilities and its counts alike, so that all agree.
Continued without it, the next prompt would not be what the model saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .invariants import Check

if TYPE_CHECKING:  # an adapter that has no model folder loads no tokenizer library
    from tito_io.families.family import Family


def may_stop(family: Family, requested: Iterable[int] = ()) -> frozenset[int]:
    """Return the ids that may end a turn: the folder's, the caller's, and every special token."""
    added = family.tokenizer.get_added_tokens_decoder()
    special = (index for index, token in added.items() if token.special)
    return frozenset((*family.stop_ids, *requested, *special))


def check_stop_token(check: Check, ids: Sequence[int], finish_reason: str, stops: frozenset[int]) -> None:
    """Demand that a turn that ended by itself ends with one of `stops`."""
    if finish_reason == "stop" and (not ids or ids[-1] not in stops):
        check.fail(
            "the turn ended at a stop token, and its last id ends no turn: the server left the token out, or "
            "its model is another one than the folder's"
        )
