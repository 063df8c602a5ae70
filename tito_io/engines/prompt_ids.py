"""The ids of a prompt as engines get them: at least one, and each in the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tito_core import Ids, InputError


def prompt_ids(ids: Sequence[int], vocab_size: int | None = None, largest: Callable[[Ids], int] = max) -> Ids:
    """Return a prompt's ids; raises `InputError` for other values, or ids beyond the vocabulary.

    `largest` returns the largest id, for callers that know a faster way.
    """
    prompt = Ids.of(ids)
    if not prompt:
        raise InputError("ids: a prompt has at least one id")
    if vocab_size is not None and (top := largest(prompt)) >= vocab_size:
        raise InputError(f"ids: {top} is not in the vocabulary of {vocab_size} ids; is it another model's?")
    return prompt
