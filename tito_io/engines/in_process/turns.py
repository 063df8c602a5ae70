"""Collect what an engine in this process samples, piece by piece, and make the reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_core import Ids, SamplingMask
from tito_core.samples import RoutedExperts
from tito_io.engines.protocol import AbortedError, Delta, EngineAnswer, Reply, Sampling, Usage
from tito_io.engines.replies.invariants import FINISHES, Check
from tito_io.engines.replies.output_text import until_stop
from tito_io.engines.replies.sampling_mask import sampling_mask
from tito_io.engines.replies.text_stream import Decode, TextStream


@attrs.frozen(kw_only=True)
class LocalTurn:
    """A turn to sample after ids that were checked.

    Attributes:
        ids: The prompt.
        sampling: The caller's sampling parameters.
        max_tokens: The most ids that fit, at most `sampling.max_tokens`.
        stop_ids: Ids that end the turn, in addition to the model's own.
        stream: Whether the caller wants each piece at once.
    """

    ids: Ids
    sampling: Sampling
    max_tokens: int
    stop_ids: tuple[int, ...]
    stream: bool


@attrs.frozen(kw_only=True)
class Piece:
    """One piece of a turn, as an engine reports it.

    Attributes:
        index: Which of the `n` turns it belongs to.
        ids: New ids.
        logprobs: One value per id, as the engine has it.
        kept: The ids of the sampling mask of each id; None where the engine gives none.
        finish_reason: Why the turn ended, in the engine's word; None while it goes on.
        stop_reason: The id or the string that ended it.
        prompt_ids: The prompt as the engine repeats it; None where it does not.
        prompt_tokens: How many ids the engine counts in the prompt; None where it does not say.
        cached_tokens: How many of them were in its prefix cache; None where it does not say.
        routed_experts: Which experts each position was routed to.
    """

    index: int = 0
    ids: Sequence[int] = ()
    logprobs: Sequence[object] = ()
    kept: Sequence[Sequence[int]] | None = None
    finish_reason: str | None = None
    stop_reason: object = None
    prompt_ids: Sequence[int] | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    weight_versions: Sequence[Mapping[str, Any]] = ()
    routed_experts: RoutedExperts | None = None


@attrs.define
class TurnParts:
    """One turn as far as it was sampled."""

    text: TextStream
    ids: list[int] = attrs.field(factory=list)
    logprobs: list[float | None] = attrs.field(factory=list)
    kept: list[Sequence[int]] = attrs.field(factory=list)
    last: Piece | None = None
    """The piece that ended it."""


@attrs.define
class Answer:
    """The turns of one request, put together from pieces.

    Attributes:
        check: The checks of what the engine reports.
        turn: What was requested.
        decode: Returns the text of ids.
    """

    check: Check
    turn: LocalTurn
    decode: Decode
    _parts: list[TurnParts] = attrs.field(init=False)
    _cached: int | None = attrs.field(default=None, init=False)

    @_parts.default
    def _no_parts(self) -> list[TurnParts]:
        hold = max((len(stop) - 1 for stop in self.turn.sampling.stop), default=0)
        return [TurnParts(TextStream(self.decode, hold)) for _ in range(self.turn.sampling.n)]

    def add(self, piece: Piece) -> Delta:
        """Add a piece; return what is new in it."""
        self._check_prompt(piece)
        if not 0 <= piece.index < len(self._parts):
            self.check.fail(f"turn {piece.index} was sampled, and {len(self._parts)} were requested")
        part = self._parts[piece.index]
        if part.last is not None:
            self.check.fail(f"turn {piece.index} goes on after its end")
        ids = self.check.ids({"ids": list(piece.ids)}, "ids")
        wanted = self.turn.sampling.logprobs
        logprobs = self.check.logprobs(piece.logprobs, len(ids)) if wanted else None
        part.ids += ids
        part.logprobs += logprobs or ()
        mask = self._mask(part, piece, ids)
        text = self._text(part, piece, ids)
        return Delta(ids=ids, logprobs=logprobs, sampling_mask=mask, text=text, index=piece.index)

    def _mask(self, part: TurnParts, piece: Piece, ids: Sequence[int]) -> SamplingMask | None:
        """Return the sampling mask of new ids, which the part has already: they come with an error, too."""
        if not self.turn.sampling.sampling_masks:
            return None
        kept = None if piece.kept is None else list(map(list, piece.kept))
        mask = sampling_mask(self.check, kept, ids)
        part.kept += kept or ()
        return mask

    def reply(self) -> Reply:
        """Return the whole reply.

        Raises:
            AbortedError: The engine gave a turn up; `partial` holds what was sampled.
        """
        ends = [FINISHES[str(part.last.finish_reason)] if part.last else "abort" for part in self._parts]
        if "abort" in ends:
            error = AbortedError(
                f"{self.check.where}: the engine gave the turn up",
                hint="what was sampled is in `partial`",
                where=self.check.where,
            )
            error.partial = self.partial()
            raise error
        return self._reply()

    def partial(self) -> Reply | None:
        """Return what was sampled before a failure; None where there is no id."""
        return self._reply() if any(part.ids for part in self._parts) else None

    def _check_prompt(self, piece: Piece) -> None:
        """Demand that the engine saw the ids that were sent: those that it repeats, or as many."""
        sent = self.turn.ids
        if piece.prompt_ids is not None:
            self.check.echo(piece.prompt_ids, sent)
        if piece.prompt_tokens is not None:
            self.check.count("counted prompt ids", piece.prompt_tokens, "prompt ids", len(sent))
        if self._cached is None:
            self._cached = piece.cached_tokens

    def _text(self, part: TurnParts, piece: Piece, ids: Sequence[int]) -> str:
        if piece.finish_reason is None:
            return part.text.add(ids)
        self.check.finish_reason({"finish_reason": piece.finish_reason})  # first: a failed turn has no end
        part.last = piece
        return part.text.end(self._turn(part).text)

    def _reply(self) -> Reply:
        first, *others = map(self._turn, self._parts)
        return attrs.evolve(first, siblings=tuple(others))

    def _turn(self, part: TurnParts) -> Reply:
        last = part.last or Piece(finish_reason="abort")
        ended = {"finish_reason": last.finish_reason}
        finish = self.check.finish_reason(ended)
        masked = self.turn.sampling.sampling_masks and len(part.kept) == len(part.ids)
        usage = Usage(
            prompt_tokens=len(self.turn.ids),
            completion_tokens=sum(len(one.ids) for one in self._parts),
            cached_tokens=self._cached,
        )
        reply = Reply(
            prompt_ids=self.turn.ids,
            completion_ids=tuple(part.ids),
            logprobs=tuple(part.logprobs) if self.turn.sampling.logprobs else None,
            message=None,
            text="",
            finish_reason=finish,
            usage=usage,
            stop_reason=self.check.stop_reason(last.stop_reason),
            weight_versions=self.check.weight_versions(list(last.weight_versions), len(part.ids)),
            routed_experts=last.routed_experts,
            sampling_mask=SamplingMask.of(part.kept) if masked else None,
            raw={**ended, "stop_reason": last.stop_reason},
        )
        return attrs.evolve(reply, text=until_stop(reply, self.decode))


def local_check(where: str, vocab_size: int | None) -> Check:
    """Return the checks of what an object reports; `where` is its method, as errors name it."""
    return Check(where, EngineAnswer(0, None), vocab_size)
