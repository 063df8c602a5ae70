"""Sampling masks of turns: which engines cannot give them, and what is demanded of a reply to have them.

The ids that top-p, top-k and min-p had kept come with each sampled id from vLLM, SGLang, `transformers` and
the embedded engine. Log-probabilities are then normalized over them, so that no other source has them.
"""

from __future__ import annotations

from .protocol import EngineAnswer, InvalidReplyError, Reply, Sampling, UnsupportedError


class MasksUnsupportedError(UnsupportedError):
    """This engine, its route, or the way in which it was started gives no sampling masks."""


def no_masks(problem: str, answer: EngineAnswer | None = None) -> MasksUnsupportedError:
    """Return the error of what has no masks; `problem` says that, and what to do.

    >>> print(no_masks("lmdeploy sends none: leave them out"))
    sampling_masks: lmdeploy sends none: leave them out; nothing of the turn was sampled
    """
    hint = "nothing of the turn was sampled"
    return MasksUnsupportedError(f"sampling_masks: {problem}", answer, hint=hint, parameter="sampling_masks")


def check_masked(name: str, reply: Reply, sampling: Sampling) -> None:
    """Raise `InvalidReplyError`, with the reply in `partial`, where a sampled id lacks its mask.

    Adapters refuse such an answer themselves. This is for engines that do not know the parameter, and for
    parts of a turn whose stream broke.
    """
    if not sampling.sampling_masks:
        return
    turns = [one for one in (reply, *reply.siblings) if one.completion_ids]
    if not all(one.sampling_mask and all(one.sampling_mask.counts) for one in turns):
        error = InvalidReplyError(
            f"{name}: sampling masks were requested and did not come for all ids: leave `sampling_masks` "
            "out, or take another engine",
            hint="the turn was sampled, and is in `partial`",
            parameter="sampling_masks",
        )
        error.partial = reply
        raise error
