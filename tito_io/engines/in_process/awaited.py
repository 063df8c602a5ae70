"""Base class of the engines whose objects stream turns from an async generator."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from .base import Cancel, InProcessEngine
from .event_loops import LoopRunner
from .mailbox import Mailbox
from .turns import LocalTurn, Piece


class AwaitedEngine(InProcessEngine):
    """Takes the pieces of an async generator, which runs in the event loop of its object."""

    _runner: LoopRunner | None = None

    def _pieces(self, turn: LocalTurn) -> AsyncGenerator[Piece]:
        """Yield what the object samples; closing it makes the object give the turn up."""
        raise NotImplementedError

    def _loop_runner(self) -> LoopRunner:
        """Return what runs coroutines in the object's event loop."""
        raise NotImplementedError

    def _start(self, turn: LocalTurn, pieces: Mailbox[Piece]) -> Cancel:
        failed: list[Exception] = []
        sent = _sent(self._pieces(turn), pieces, failed)
        future = self._loop_runner().start(sent, lambda: pieces.close(*failed))
        return partial(future.cancel)


async def _sent(sampled: AsyncGenerator[Piece], pieces: Mailbox[Piece], failed: list[Exception]) -> None:
    """Put every piece into the mailbox; leave an error in `failed`, which the caller raises."""
    try:
        async with aclosing(sampled):
            async for piece in sampled:
                pieces.put(piece)
    except Exception as error:  # noqa: BLE001  # the caller raises it
        failed.append(error)
