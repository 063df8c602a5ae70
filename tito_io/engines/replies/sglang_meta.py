"""Readers of SGLang's `meta_info`: log-probabilities, sampling masks and cache counts of a sampled turn.

Miles' session server passes the same fields on. Each reader raises where a value does not belong to the
sampled ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .invariants import Check

KEPT, OVER_KEPT = "output_token_sampling_mask", "output_token_sampling_logprobs"
"""The kept ids of each sampled id, and its log-probability normalized over them. `output_token_logprobs` is
normalized over the whole vocabulary even then (`srt/managers/tokenizer_manager.py`, 0.5.23)."""
MASKED = {"return_sampling_mask": True}
"""Requests both; one log-probability an id comes unless `sampling_logprobs_mode` says otherwise."""


def triples(check: Check, meta: object, ids: Sequence[int]) -> tuple[float | None, ...]:
    """Return log-probabilities from `[log-probability, id, text]` a sampled id; the ids must be those.

    A turn that ended early may come without any: that is an error, not a turn without log-probabilities.
    """
    entries = check.get(meta, "output_token_logprobs", list)
    named = [triple_id(check, triple) for triple in entries]
    check.count("log-probabilities", len(entries), "sampled ids", len(ids))
    if named != list(ids):
        check.fail("the log-probabilities belong to other ids than were sampled")
    return check.logprobs([triple[0] for triple in entries], len(ids))


def over_kept(check: Check, meta: Mapping[str, Any], count: int) -> tuple[float | None, ...]:
    """Return the log-probabilities of `count` sampled ids that are normalized over their sampling masks."""
    return check.logprobs(check.get(meta, OVER_KEPT, list), count)


def triple_id(check: Check, triple: object) -> int:
    """Return the id of one log-probability."""
    if not isinstance(triple, list) or len(triple) < 2 or type(triple[1]) is not int:  # noqa: PLR2004  # a value and its id
        check.fail("an entry of `output_token_logprobs` is not a log-probability with its id")
    return triple[1]


def cached(meta: Mapping[str, Any]) -> int | None:
    """Return how much of the prompt was in the prefix cache."""
    count = meta.get("cached_tokens")
    return count if type(count) is int else None
