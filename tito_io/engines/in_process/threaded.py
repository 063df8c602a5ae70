"""Base class of the engines whose object samples in one thread, several turns as one batch where it can."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import attrs

from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.engines.replies.stop_strings import found_stop
from tito_io.engines.replies.text_stream import Decode
from tito_io.families.family import Family
from tito_io.families.tokenizer_family import TokenizerFamily

from .base import Cancel, InProcessEngine
from .devices import current_device, use_device
from .mailbox import Mailbox, threadsafe_call
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
        close: Ends what `put` takes, with the error or None.
        given_up: Set when the caller does not want the turns any more.
        error: What went wrong with these turns, where others of their batch go on.
        rows: The turns.
    """

    turn: LocalTurn
    stops: frozenset[int]
    decode: Decode
    put: Callable[[Piece], None]
    close: Callable[[BaseException | None], None]
    given_up: Event = attrs.field(factory=Event)
    error: BaseException | None = None
    rows: list[Row] = attrs.field(init=False)

    @rows.default
    def _empty_rows(self) -> list[Row]:
        return [Row() for _ in range(self.turn.sampling.n)]

    @property
    def ended(self) -> list[bool]:
        """Whether each turn has ended or is not wanted any more."""
        return [row.ended or self.given_up.is_set() for row in self.rows]

    def fail(self, error: BaseException) -> None:
        """Give the turns up for an error that their caller gets."""
        self.error = error
        self.given_up.set()

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


@attrs.define(eq=False)
class Job:
    """Turns that wait to be sampled, or are.

    Attributes:
        sampled: The turns.
        pieces: Takes what is sampled.
        taken: Whether the thread of the engine has taken them.
    """

    sampled: SampledRows
    pieces: Mailbox[Piece]
    taken: bool = False

    def cancel(self) -> None:
        """Give the turns up; those that wait end at once, others with the model's next step."""
        self.sampled.given_up.set()
        if not self.taken:
            self.pieces.close()


class ThreadedEngine(InProcessEngine):
    """Samples turns with a function, in the thread of the engine.

    Turns that wait are sampled as one batch, as far as the object can. Each caller gets its reply when its
    own turns have ended. The last one waits until the object is at rest: its owner may change weights then.
    """

    def __init__(
        self, family: Family | TokenizerFamily, *, output_format: OutputFormat | None = None
    ) -> None:
        super().__init__(family, output_format=output_format)
        self._device = current_device()
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[Job] = deque()

    async def aclose(self) -> None:
        """End the thread; the model belongs to its owner."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _sample(self, batch: Sequence[SampledRows]) -> None:
        """Sample the turns of a batch and add what is sampled, until they have ended or are given up."""
        raise NotImplementedError

    def _joins(self, batch: Sequence[SampledRows], other: SampledRows) -> bool:
        """Whether the object can sample more turns in the batch: by default it has those of one request."""
        del batch, other
        return False

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
        job = Job(SampledRows(turn, stops, self.family.decode, pieces.put, pieces.close), pieces)
        self._waiting.append(job)
        # After this step of the event loop, in which others may be asked for, too. Each call samples as many
        # turns as it can, so that some find none left.
        threadsafe_call()(self._submit)
        return job.cancel

    def _submit(self) -> None:
        self._executor().submit(self._sample_waiting)

    def _sample_waiting(self) -> None:
        """Sample the turns that wait, as far as they join one batch; what was given up is not sampled."""
        jobs = self._taken()
        batch = [job.sampled for job in jobs if not job.sampled.given_up.is_set()]
        failed: BaseException | None = None
        try:
            if batch:
                self._sample(batch)
        except BaseException as error:  # noqa: BLE001  # the callers get it
            failed = error
        for job in jobs:
            job.pieces.close(job.sampled.error or failed)

    def _taken(self) -> list[Job]:
        """Return the job that has waited longest, and those behind it that join it in order."""
        jobs: list[Job] = []
        while self._waiting:
            if jobs and not self._joins([job.sampled for job in jobs], self._waiting[0].sampled):
                break
            jobs.append(self._waiting.popleft())
            jobs[-1].taken = True
        return jobs
