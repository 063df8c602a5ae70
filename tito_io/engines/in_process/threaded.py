"""Base class of the engines whose object samples one turn after the other, in one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import attrs

from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.engines.replies.stop_strings import found_stop
from tito_io.engines.replies.text_stream import Decode
from tito_io.families.family import Family
from tito_io.families.tokenizer_family import TokenizerFamily

from .base import Cancel, InProcessEngine
from .devices import current_device, use_device
from .mailbox import Mailbox
from .turns import LocalTurn, Piece


@attrs.define
class Row:
    """One of the `n` turns: all of its ids, those that were not sent yet, and whether it has ended."""

    ids: list[int] = attrs.field(factory=list)
    new: list[tuple[int, float, Sequence[int] | None]] = attrs.field(factory=list)
    ended: bool = False


@attrs.define(eq=False)
class SampledRows:
    """The turns of one request, as they are sampled id by id.

    Attributes:
        turn: What to sample.
        stops: Ids that end a turn.
        decode: Returns the text of ids.
        put: Takes what was sampled.
        given_up: Set when the caller does not want the turns any more.
        rows: The turns.
    """

    turn: LocalTurn
    stops: frozenset[int]
    decode: Decode
    put: Callable[[Piece], None]
    given_up: Event = attrs.field(factory=Event)
    rows: list[Row] = attrs.field(init=False)

    @rows.default
    def _empty_rows(self) -> list[Row]:
        return [Row() for _ in range(self.turn.sampling.n)]

    def add(self, index: int, token: int, logprob: float, kept: Sequence[int] | None = None) -> bool:
        """Add an id to a turn, and send it where the turn is streamed or ends with it.

        Returns whether the turn has ended; what follows its end is dropped.
        """
        row = self.rows[index]
        if row.ended or self.given_up.is_set():
            return row.ended
        row.ids.append(token)
        row.new.append((token, logprob, kept))
        reason, finish = self._end(row)
        row.ended = finish is not None
        if row.ended or self.turn.stream:
            ids, logprobs, masks = zip(*row.new, strict=True)
            row.new.clear()
            self.put(
                Piece(
                    index=index,
                    ids=ids,
                    logprobs=logprobs,
                    kept=None if None in masks else masks,
                    finish_reason=finish,
                    stop_reason=reason,
                )
            )
        return row.ended

    def _end(self, row: Row) -> tuple[int | str | None, str | None]:
        """Return what ended a turn and how; two Nones where it goes on."""
        if row.ids[-1] in self.stops:
            return row.ids[-1], "stop"
        found = found_stop(self.turn.sampling.stop, row.ids, self.decode)
        if found is not None:
            return found, "stop"
        return None, "length" if len(row.ids) >= self.turn.max_tokens else None


class ThreadedEngine(InProcessEngine):
    """Samples a turn with a function, in the thread of the engine."""

    def __init__(
        self, family: Family | TokenizerFamily, *, output_format: OutputFormat | None = None
    ) -> None:
        super().__init__(family, output_format=output_format)
        self._device = current_device()
        self._thread: ThreadPoolExecutor | None = None

    async def aclose(self) -> None:
        """End the thread; the model belongs to its owner."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _sample(self, sampled: SampledRows) -> None:
        """Sample turns and add what is sampled, until they have ended or are given up."""
        raise NotImplementedError

    def _stop_ids(self) -> tuple[int, ...]:
        """Return the ids that end a turn of the model."""
        return self.family.stop_ids

    def _executor(self) -> ThreadPoolExecutor:
        """Return the thread in which the model runs."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(
                1, thread_name_prefix=f"tito-{self.name}", initializer=use_device, initargs=(self._device,)
            )
        return self._thread

    def _start(self, turn: LocalTurn, pieces: Mailbox[Piece]) -> Cancel:
        stops = frozenset((*self._stop_ids(), *turn.stop_ids))
        sampled = SampledRows(turn, stops, self.family.decode, pieces.put)
        future: Future[None] = self._executor().submit(self._sample, sampled)
        future.add_done_callback(pieces.close_after)

        def cancel() -> None:
            sampled.given_up.set()
            future.cancel()  # if its time has not come

        return cancel
