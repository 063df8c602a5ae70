"""Reader of sampling masks, which vLLM and SGLang send as one list of kept ids for each sampled id."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import attrs

from tito_core import InputError, SamplingMask
from tito_io.engines.protocol import InvalidReplyError, Reply

from .invariants import Check


def sampling_mask(check: Check, kept: object, ids: Sequence[int], instead: str = "") -> SamplingMask:
    """Return the mask of sampled ids; every position has its own id in it.

    Args:
        check: The checks of the answer.
        kept: One list of ids for each of `ids`, as the engine sent it.
        ids: The sampled ids.
        instead: How the engine is made to send masks, as the error about an answer without says it.

    Raises:
        InvalidReplyError: There are no masks, there are more or fewer than ids, or one lacks the sampled id:
            masks that do not line up are those of other ids, and are never moved.
    """
    if kept is None and ids:
        raise InvalidReplyError(
            f"{check.where}: the answer lacks the sampling masks that were requested{instead}",
            check.answer,
            where=check.where,
            parameter="sampling_masks",
        )
    lists = [
        check.typed(one, list, "sampling mask") for one in check.typed(kept or [], list, "sampling masks")
    ]
    check.ids({"sampling_mask": [*chain.from_iterable(lists)]}, "sampling_mask")
    mask = SamplingMask.of(lists)
    empty = next((place for place, one in enumerate(lists) if not one), None)
    if empty is not None:
        check.fail(f"the sampling mask at position {empty} is empty, and an id was sampled there")
    try:
        mask.require(ids, "sampled ids")
    except InputError as error:
        check.fail(str(error))
    return mask


def masked(check: Check, reply: Reply, kept: Sequence[object], instead: str) -> Reply:
    """Return a reply and its siblings with their masks, of which `kept` has those of each turn.

    The error of masks that are missing or do not line up holds the reply without any in `partial`.
    """
    turns = zip((reply, *reply.siblings), kept, strict=True)
    try:
        masks = [sampling_mask(check, one, turn.completion_ids, instead) for turn, one in turns]
    except InvalidReplyError as error:
        error.partial = reply
        raise
    siblings = zip(reply.siblings, masks[1:], strict=True)
    others = tuple(attrs.evolve(turn, sampling_mask=mask) for turn, mask in siblings)
    return attrs.evolve(reply, sampling_mask=masks[0], siblings=others)
