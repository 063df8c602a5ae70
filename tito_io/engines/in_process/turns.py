"""What an engine in this process samples, piece by piece, and the reply that the pieces make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tito_core import Ids
from tito_core.samples import RoutedExperts, WeightVersion
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    EngineAnswer,
    Reply,
    Sampling,
    Usage,
)
from tito_io.engines.replies.invariants import FINISHES, Check
from tito_io.engines.replies.output_text import until_stop

Decode = Callable[[Sequence[int]], str]
INCOMPLETE = "\ufffd"
"""What the ids of a part of a character are decoded to."""


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
    """What an engine reports at once of one turn.

    Attributes:
        index: Which of the `n` turns it belongs to.
        ids: New ids.
        logprobs: One value per id, as the engine has it.
        finish_reason: Why the turn ended, in the engine's word; None while it goes on.
        stop_reason: The id or the string that ended it.
        prompt_ids: The prompt as the engine repeats it; None where it does not.
        prompt_tokens: How many ids the engine counts in the prompt; None where it does not say.
        cached_tokens: How many of them were in its prefix cache; None where it does not say.
        weight_versions: Which weights sampled which ids: objects with `version`, `start` and `end`.
        routed_experts: Which experts each position was routed to.
    """

    index: int = 0
    ids: Sequence[int] = ()
    logprobs: Sequence[object] = ()
    finish_reason: str | None = None
    stop_reason: object = None
    prompt_ids: Sequence[int] | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    weight_versions: Sequence[Mapping[str, Any]] = ()
    routed_experts: RoutedExperts | None = None


@attrs.define
class TextStream:
    """The text of ids that come in pieces.

    A part of a character waits for the rest of it, and what may begin a stop string waits for what follows.

    Attributes:
        decode: Returns the text of ids.
        hold: How many characters wait, because a stop string may begin there.

    >>> stream = TextStream(lambda ids: "".join(map(chr, ids)), hold=1)
    >>> stream.add([72, 105, 33]), stream.end("Hi")
    ('Hi', '')
    """

    decode: Decode
    hold: int = 0
    _ids: list[int] = attrs.field(factory=list, init=False)
    _window: tuple[int, int] = attrs.field(default=(0, 0), init=False)
    _pending: str = attrs.field(default="", init=False)
    _sent: int = attrs.field(default=0, init=False)

    def add(self, ids: Sequence[int]) -> str:
        """Return the text that is certain now.

        Only a short window is decoded: ids whose text came before, as context, and the new ones.
        """
        self._ids += ids
        start, end = self._window
        before, text = self.decode(self._ids[start:end]), self.decode(self._ids[start:])
        if len(text) > len(before) and not text.endswith(INCOMPLETE):
            self._window = (end, len(self._ids))
            self._pending += text[len(before) :]
        ready = self._pending[: max(len(self._pending) - self.hold, 0)]
        self._pending = self._pending[len(ready) :]
        self._sent += len(ready)
        return ready

    def end(self, text: str) -> str:
        """Return the rest of the whole turn's `text`."""
        return text[self._sent :]


@attrs.define
class TurnParts:
    """One turn as far as it was sampled."""

    text: TextStream
    ids: list[int] = attrs.field(factory=list)
    logprobs: list[float | None] = attrs.field(factory=list)
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
        logprobs = self.check.logprobs(piece.logprobs, len(ids))
        part.ids += ids
        part.logprobs += logprobs
        return Delta(ids=ids, logprobs=logprobs, text=self._text(part, piece, ids), index=piece.index)

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
        return attrs.evolve(self._reply(), finish_reason="abort") if any(p.ids for p in self._parts) else None

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
        finish = self.check.finish_reason({"finish_reason": last.finish_reason})
        reply = Reply(
            prompt_ids=self.turn.ids,
            completion_ids=tuple(part.ids),
            logprobs=tuple(part.logprobs),
            message=None,
            text="",
            finish_reason=finish,
            usage=self._usage(),
            stop_reason=self.check.stop_reason(last.stop_reason),
            weight_versions=self._versions(last, len(part.ids)),
            routed_experts=last.routed_experts,
            raw={"finish_reason": last.finish_reason, "stop_reason": last.stop_reason},
        )
        return attrs.evolve(reply, text=until_stop(reply, self.decode))

    def _versions(self, last: Piece, count: int) -> tuple[WeightVersion, ...]:
        return self.check.weight_versions(list(last.weight_versions), count)

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=len(self.turn.ids),
            completion_tokens=sum(len(part.ids) for part in self._parts),
            cached_tokens=self._cached,
        )


def local_check(where: str, vocab_size: int | None) -> Check:
    """Return the checks of what an object reports; `where` is its method, as errors name it."""
    return Check(where, EngineAnswer(0, None), vocab_size)
