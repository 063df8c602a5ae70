"""Run coroutines in the event loop to which an engine belongs, from any other loop or thread.

An engine's tasks live in the event loop in which it was used first. Awaited in another one, it never answers.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from typing import Any

import attrs

from tito_io.engines.protocol import UnsupportedError

LOOK_AGAIN = 0.05
"""Seconds after which to look whether the loop that another thread ran still runs."""


@attrs.define(eq=False)
class LoopRunner:
    """Runs coroutines in one event loop. Where nothing else runs it, a thread does, while there is work.

    Attributes:
        loop: The event loop.
    """

    loop: AbstractEventLoop
    _lock: Lock = attrs.field(factory=Lock, init=False)
    _work: list[Future[None]] = attrs.field(factory=list, init=False)
    _thread: Thread | None = attrs.field(default=None, init=False)
    _waiting: list[Callable[[], object]] = attrs.field(factory=list, init=False)

    def start(
        self, coroutine: Coroutine[Any, Any, None], over: Callable[[Future[None]], object]
    ) -> Future[None]:
        """Start a coroutine; to cancel the future cancels it.

        `over` is called with the future once it is done. Where it was the last one, the thread has left the
        loop before that, so that the owner can run the loop.

        Raises:
            UnsupportedError: The loop was closed.
        """
        if self.loop.is_closed():
            coroutine.close()
            raise UnsupportedError(
                "the engine belongs to an event loop that has ended, and cannot answer in another: use it in "
                "one event loop, such as one call of asyncio.run. Nothing was sampled"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        with self._lock:
            self._work.append(future)
            if self._thread is None and self._other_loop():
                self._thread = Thread(target=self._run, name="tito-event-loop", daemon=True)
                self._thread.start()
        future.add_done_callback(lambda done: self._end(partial(over, done)))
        return future

    def _end(self, over: Callable[[], object]) -> None:
        """Call `over`, or leave that to the thread where it has no more work."""
        with self._lock:
            if self._thread is not None and all(future.done() for future in self._work):
                self._waiting.append(over)
                return
        over()

    def _other_loop(self) -> bool:
        """Whether the current thread does not run the loop itself."""
        try:
            return asyncio.get_running_loop() is not self.loop
        except RuntimeError:
            return True

    def _run(self) -> None:
        """Run the loop until there is no work; while another thread runs it, wait."""
        while (future := self._next()) is not None:
            if self.loop.is_running():
                with suppress(NotYet, asyncio.CancelledError, Exception):
                    future.result(LOOK_AGAIN)
                continue
            with suppress(RuntimeError):  # another thread began to run it just now
                self.loop.run_until_complete(_finished(future))

    def _next(self) -> Future[None] | None:
        """Return work that is not done; None where there is nothing more to do, and the thread ends."""
        with self._lock:
            self._work = [future for future in self._work if not future.done()]
            waiting, self._waiting = self._waiting, []
            oldest = next(iter(self._work), None)
            if oldest is None:
                self._thread = None
        for over in waiting:
            over()
        return oldest


async def _finished(future: Future[None]) -> None:
    """Wait for a future; what it raises is for its caller."""
    (done,), _ = await asyncio.wait([asyncio.wrap_future(future)])
    if not done.cancelled():
        done.exception()  # or asyncio reports that it was never retrieved
