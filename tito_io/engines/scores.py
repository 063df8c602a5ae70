"""Log-probabilities of exact ids by a forward pass, and the choice of where log-probabilities come from.

Engines compute log-probabilities while they sample, which costs time with every id. They can be left out, or
computed afterwards by one pass over the same ids. Both give exact ids. A pass gives the model's own
log-probabilities: before temperature, top-k and top-p, in batches of another shape than those of sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import attrs

from tito_core import Ids, InputError
from tito_core.message import is_multimodal

from .protocol import Engine, EngineError, InvalidReplyError, Reply, SampleRequest, UnsupportedError, chosen
from .sampling_masks import no_masks
from .wrapper import EngineWrapper


class LogprobsFrom(StrEnum):
    """Where a turn's log-probabilities come from.

    Attributes:
        SAMPLING: From the engine as it samples (default).
        SCORING: From a pass over prompt and completion afterwards, a request more for each turn.
        NOWHERE: They are left out: `Reply.logprobs` and `Step.logprobs` are None.
    """

    SAMPLING = "sampling"
    SCORING = "scoring"
    NOWHERE = "nowhere"


def as_logprobs_from(value: LogprobsFrom | str) -> LogprobsFrom:
    """Return where log-probabilities come from, given as it is or by its name.

    >>> as_logprobs_from("scoring")
    <LogprobsFrom.SCORING: 'scoring'>
    """
    return chosen(LogprobsFrom, value, "logprobs_from")


async def score(engine: Engine, ids: Sequence[int], start: int) -> tuple[float | None, ...]:
    """Return the natural-log probability of each id from position `start` on, given all ids before it.

    vLLM, SGLang and the engines in this process do that: vLLM by `prompt_logprobs`, SGLang by
    `logprob_start_len`, `transformers` by a forward pass.

    Args:
        engine: The engine.
        ids: A prompt and what followed it.
        start: The first position to score; at least 1, as nothing precedes the first id.

    Raises:
        InputError: `ids` is empty, or `start` is no position of `ids` after the first.
        UnsupportedError: The engine, or its adapter, scores no ids. Nothing was sent.
        OverlongError: The ids leave no room in the context, of which a pass needs one more.
    """
    if not len(ids):
        raise InputError("ids is empty: give a prompt and what followed it")
    if type(start) is not int or not 1 <= start <= len(ids):
        raise InputError(f"start is {start!r:.60}: give a position from 1 to {len(ids)}")
    scored: Any = getattr(engine, "score", None)
    if scored is None:
        raise UnsupportedError(
            f"{engine.name}: its adapter computes no log-probabilities of given ids. Nothing was sent"
        )
    if start == len(ids):
        return ()
    values: tuple[float | None, ...] = await scored(Ids.of(ids), start)
    if len(values) != len(ids) - start:
        raise InvalidReplyError(f"{engine.name}: {len(values)} scores for {len(ids) - start} ids")
    return values


def _no_media() -> UnsupportedError:
    return UnsupportedError(
        "logprobs_from='scoring': a pass over ids has no media: pass 'sampling'. Nothing was sampled",
        parameter="logprobs_from",
    )


@attrs.define
class ScoredTurns(EngineWrapper):
    """An engine whose turns have log-probabilities from elsewhere than sampling.

    Attributes:
        engine: The wrapped engine.
        source: Where they come from.
        name: Its name.
        keeps_ids: Whether it stores ids itself.
    """

    source: LogprobsFrom = attrs.field(default=LogprobsFrom.SAMPLING, converter=as_logprobs_from)

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample a turn; raises `UnsupportedError` for a pass over media, or over ids with sampling masks."""
        if self.source is LogprobsFrom.SAMPLING:
            return await self.engine.sample(request)
        if self.source is LogprobsFrom.SCORING and request.sampling.sampling_masks:
            raise no_masks(
                "with logprobs_from='scoring' log-probabilities are normalized over the whole vocabulary, "
                "not over masks: pass 'sampling'"
            )
        if self.source is LogprobsFrom.SCORING and (request.media or is_multimodal(request.messages or ())):
            raise _no_media()
        quiet = attrs.evolve(request, sampling=attrs.evolve(request.sampling, logprobs=False))
        return await self._scored(await self.engine.sample(quiet))

    async def _scored(self, reply: Reply) -> Reply:
        """Return a reply with the log-probabilities of a pass; an error on the way holds it in `partial`."""
        if self.source is not LogprobsFrom.SCORING:
            return reply
        try:
            turns = [await self._with_scores(one) for one in (reply, *reply.siblings)]
        except EngineError as error:
            error.partial = reply
            raise
        return attrs.evolve(turns[0], siblings=tuple(turns[1:]))

    async def _with_scores(self, reply: Reply) -> Reply:
        if not reply.prompt_ids:
            raise UnsupportedError(f"{self.name}: the ids of the prompt did not come: the turn has no scores")
        ids = Ids.of([*reply.prompt_ids, *reply.completion_ids])
        values = await score(self.engine, ids, len(reply.prompt_ids))
        return attrs.evolve(reply, siblings=(), logprobs=values)
