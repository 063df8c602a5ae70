"""How many ids went in and came out, and how many of them were known or thought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .generation import Generation
from .vocabulary import CALL, CLOSE, OVER, THINK, THOUGHT, vocabulary


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """Return the three counts.

    >>> usage(5, 2)
    {'prompt_tokens': 5, 'total_tokens': 7, 'completion_tokens': 2}
    """
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def cached(count: int, created: int | None) -> dict[str, Any]:
    """Return what is told of the prompt."""
    return {"cached_tokens": count, "created_cache_tokens": created, "multimodal_tokens": None}


def full(
    prompt: int, replies: Sequence[Generation], known: dict[str, Any], thought: int | None
) -> dict[str, Any]:
    """Return the counts of a whole answer with their details."""
    details = None if thought is None else {"reasoning_tokens": thought}
    counts = usage(prompt, sum(len(reply.ids) for reply in replies))
    return {**counts, "prompt_tokens_details": known, "completion_tokens_details": details}


def thoughts(ids: Sequence[int], *, thinking: bool) -> int:
    """Return how many ids are thought: those before `</think>`, without the tags."""
    words = vocabulary()
    ends = {words.id(token) for token in (THOUGHT, CALL, CLOSE, OVER)}
    count = 0
    for identifier in ids if thinking else ():
        if identifier in ends:
            break
        count += identifier != words.id(THINK)
    return count
