"""Items from another thread or event loop, awaited in the event loop of the caller."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel

T = TypeVar("T")


def threadsafe_call() -> Callable[[Callable[[], object]], object]:
    """Return what runs a function in the current event loop, soon, from any thread."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio  # noqa: PLC0415  # it is the running event loop

        return trio.lowlevel.current_trio_token().run_sync_soon


class Mailbox(Generic[T]):
    """Takes items from any thread; the event loop in which it was made receives them in order.

    Attributes:
        closed: Set once nothing more comes.
    """

    def __init__(self) -> None:
        self.closed = anyio.Event()
        self._error: BaseException | None = None
        self._call = threadsafe_call()
        self._items: deque[T] = deque()
        self._changed = anyio.Event()

    def put(self, item: T) -> None:
        """Add an item. What comes after the end is dropped, as is all of a mailbox whose loop has ended."""
        self._soon(partial(self._add, item))

    def close(self, error: BaseException | None = None) -> None:
        """End the items, with an error that the receiver raises. Only the first call has an effect."""
        self._soon(partial(self._end, error))

    def close_after(self, done: Future[Any]) -> None:
        """End the items with what a future raised, if it did."""
        self.close(None if done.cancelled() else done.exception())

    async def receive(self) -> T | None:
        """Return the next item; None at the end. Raises the error with which the items ended."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # also where items wait already
        while not self._items and not self.closed.is_set():
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._items:
            return self._items.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _soon(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and with it every receiver
            self._call(function)

    def _add(self, item: T) -> None:
        if not self.closed.is_set():
            self._items.append(item)
            self._changed.set()

    def _end(self, error: BaseException | None) -> None:
        if not self.closed.is_set():
            self._error = error
            self.closed.set()
            self._changed.set()
