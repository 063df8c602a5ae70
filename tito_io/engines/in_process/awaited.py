"""Base class of the engines whose objects stream turns from an async generator."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator
from contextlib import aclosing

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

    def _loop(self) -> AbstractEventLoop:
        """Return the event loop to which the object belongs."""
        raise NotImplementedError

    def _start(self, turn: LocalTurn, pieces: Mailbox[Piece]) -> Cancel:
        loop = self._loop()
        if self._runner is None or self._runner.loop is not loop:
            self._runner = LoopRunner(loop)
        return self._runner.start(_sent(self._pieces(turn), pieces), pieces.close_after).cancel


async def _sent(sampled: AsyncGenerator[Piece], pieces: Mailbox[Piece]) -> None:
    """Put every piece into the mailbox."""
    async with aclosing(sampled):
        async for piece in sampled:
            pieces.put(piece)
