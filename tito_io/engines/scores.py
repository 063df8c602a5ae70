"""Log-probabilities of exact ids by a forward pass, and the choice of where log-probabilities come from.

Engines compute log-probabilities while they sample, which costs time with every id. They can be left out, or
computed afterwards by one pass over the same ids. Both give exact ids. A pass gives the model's own
log-probabilities: before temperature, top-k and top-p, in batches of another shape than those of sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Any

import attrs

from tito_core import Ids, InputError
from tito_core.message import is_multimodal

from .protocol import Engine, EngineError, InvalidReplyError, Reply, SampleRequest, UnsupportedError, chosen
from .sampling_masks import no_masks
from .turn_parts import output_parser
from .wrapper import EngineWrapper


class LogprobsFrom(StrEnum):
    """The source of a turn's log-probabilities.

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


@attrs.frozen(kw_only=True)
class TopScores:
    """An engine's log-probabilities of given ids, for example as the teacher of another one.

    Attributes:
        start: The first position that was scored.
        logprobs: The natural-log probability of each id from there on.
        top: The most likely (id, log-probability) of each of these positions, the likeliest first.
    """

    start: int
    logprobs: tuple[float | None, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]

    def columns(self) -> dict[str, list[Any]]:
        """Return columns with an item per id of a row, None before `start`.

        >>> scores = TopScores(start=1, logprobs=(-0.5,), top=(((7, -0.25), (8, -0.5)),))
        >>> scores.columns()["teacher_logprobs"], scores.columns()["teacher_top_ids"]
        ([None, -0.5], [None, [7, 8]])
        """
        before = [None] * self.start
        return {
            "teacher_logprobs": [*before, *self.logprobs],
            "teacher_top_ids": [*before, *([index for index, _ in one] for one in self.top)],
            "teacher_top_logprobs": [*before, *([value for _, value in one] for one in self.top)],
        }


async def score_by_teacher(
    teacher: Engine, ids: Sequence[int], start: int, *, student: Engine, top: int
) -> TopScores:
    """Return what a teacher says of the exact ids that a student sampled, for on-policy distillation.

    Both must read the ids as the same text: log-probabilities of ids that mean something else in the
    teacher's vocabulary would be noise. Both tokenizers decode the ids, a request each where they are on
    servers.

    Args:
        teacher: The engine that scores: vLLM, or the embedded engine.
        ids: A prompt and what followed it, such as `row.ids`.
        start: The first position to score; at least 1.
        student: The engine that sampled the ids.
        top: How many of the teacher's most likely ids to return for each position; at least 1.

    Raises:
        InputError: `top` or `start` is out of range, or the teacher has another tokenizer.
        UnsupportedError: The teacher scores no alternatives, or an adapter has no tokenizer.
    """
    if type(top) is not int or top < 1:
        raise InputError(f"top is {top!r:.60}: give a number of ids, one or more")
    if type(start) is not int or not 1 <= start < len(ids):
        raise InputError(f"start is {start!r:.60}: give a position from 1 to {len(ids) - 1}")
    scored: Any = getattr(teacher, "top_scores", None)
    if scored is None:
        raise UnsupportedError(
            f"{teacher.name}: its adapter scores no alternatives of given ids: use vLLM. Nothing was sent"
        )
    texts = [await (await output_parser(one)).tokenizer.decode(list(ids)) for one in (student, teacher)]
    if texts[0] != texts[1]:
        place = next((n for n, pair in enumerate(zip_longest(*texts)) if pair[0] != pair[1]), 0)
        ours, theirs = (text[max(place - 10, 0) : place + 10] for text in texts)
        raise InputError(
            f"the teacher {teacher.name!r} has another tokenizer than the student {student.name!r}: the same "
            f"ids are {theirs!r} and {ours!r} from character {max(place - 10, 0)} on. Choose a teacher with "
            "the student's tokenizer, or use its judgement of the text as a reward"
        )
    values: TopScores = await scored(Ids.of(ids), start, top)
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
