"""Step a synchronous vLLM engine in one thread, as long as there are turns to sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock, Thread
from typing import Any
from uuid import uuid4

import attrs

from tito_io.engines.protocol import ServerError, UnsupportedError

from .devices import current_device, use_device
from .mailbox import Mailbox
from .turns import Piece

BUSY = (
    "the LLM has unfinished requests of another caller: wait for them (`wait_for_completion`) before a turn "
    "is sampled. Nothing was sampled"
)
SHARED = (
    "another caller used the LLM while turns were sampled, and its output came here: call its methods before "
    "or after turns, not during them"
)


@attrs.define(eq=False)
class Job:
    """One request.

    Attributes:
        prompt: The prompt, as the engine takes it.
        params: Its sampling parameters.
        pieces: Where what is sampled goes.
        name: The request's id, by which outputs name it.
        internal: The engine's own id of the request, once it has one.
    """

    prompt: Any
    params: Any
    pieces: Mailbox[Piece]
    name: str = attrs.field(factory=lambda: f"tito-{uuid4().hex}")
    internal: str | None = None


@attrs.define(eq=False)
class Stepper:
    """Samples the turns of all callers together, as vLLM's own loop does (`LLM._run_engine`).

    Attributes:
        engine: The `LLMEngine` of a `vllm.LLM`.
        read: Returns the pieces of an output.
        device: The CUDA device of the thread that made the object: a new thread would use device 0.
    """

    engine: Any
    read: Callable[[Any], Iterator[Piece]]
    device: int | None = attrs.field(factory=current_device, init=False)
    _lock: Lock = attrs.field(factory=Lock, init=False)
    _new: list[Job] = attrs.field(factory=list, init=False)
    _dropped: list[Job] = attrs.field(factory=list, init=False)
    _jobs: dict[str, Job] = attrs.field(factory=dict, init=False)
    _running: bool = attrs.field(default=False, init=False)

    def start(self, job: Job) -> None:
        """Sample a request, beside those that are being sampled."""
        with self._lock:
            self._new.append(job)
            if not self._running:
                self._running = True
                Thread(target=self._run, name="tito-vllm-step", daemon=True).start()

    def drop(self, job: Job) -> None:
        """Give a request up; nothing happens where it is over."""
        with self._lock:
            if self._running:
                self._dropped.append(job)

    def _run(self) -> None:
        use_device(self.device)
        try:
            while self._admit():
                # Without a request, the client of an engine in another process waits for ever.
                for output in self.engine.step() if self._jobs else ():
                    self._deliver(output)
        except BaseException as error:  # noqa: BLE001  # each caller raises it
            self._fail(error)

    def _admit(self) -> bool:
        """Begin new requests and give up dropped ones; return whether any is left, else the thread ends."""
        with self._lock:
            new, dropped, self._new, self._dropped = self._new, self._dropped, [], []
            if not (new or self._jobs):
                self._running = False
                return False
        if not self._jobs and self.engine.has_unfinished_requests():
            error = UnsupportedError(BUSY)
            for job in new:
                job.pieces.close(error)
            return True
        for job in new:
            self._begin(job)
        for job in dropped:
            self._give_up(job)
        return True

    def _begin(self, job: Job) -> None:
        self._jobs[job.name] = job
        try:
            job.internal = self.engine.add_request(job.name, job.prompt, job.params)
        except Exception as error:  # noqa: BLE001  # its caller raises it; other requests go on
            del self._jobs[job.name]
            job.pieces.close(error)

    def _give_up(self, job: Job) -> None:
        if self._jobs.pop(job.name, None) is not None:
            self.engine.abort_request([job.internal], internal=True)
            job.pieces.close()

    def _deliver(self, output: Any) -> None:
        job = self._jobs.get(output.request_id)
        if job is None:
            raise UnsupportedError(SHARED)
        for piece in self.read(output):
            job.pieces.put(piece)
        if output.finished:
            del self._jobs[job.name]
            job.pieces.close()

    def _fail(self, error: BaseException) -> None:
        """End every request with an error, and leave the engine without them."""
        with self._lock:
            failed = [*self._jobs.values(), *self._new]
            self._running, self._jobs, self._new, self._dropped = False, {}, [], []
        with suppress(Exception):  # the engine has failed already
            self.engine.abort_request([job.internal for job in failed if job.internal], internal=True)
        reason = error if isinstance(error, Exception) else ServerError(f"it ended: {type(error).__name__}")
        for job in failed:
            job.pieces.close(reason)
