"""One request for a turn, sent in one piece or as a stream, and read by the same reader.

What was received is never lost: an error after the first id carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import attrs

from tito_io.engines.protocol import AbortedError, EngineError, Reply, Watch
from tito_io.engines.replies.chunks import Assembly
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.shapes import settled
from tito_io.engines.wire import Wire

from .replies import VllmQuestion, read, torn
from .routes import Way

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


@attrs.frozen
class VllmRequest:
    """One request for a turn."""

    wire: Wire
    check: Callable[[object], Check]
    """Makes what checks an answer."""
    way: Way
    body: Mapping[str, Any]
    asked: VllmQuestion

    async def whole(self) -> Reply:
        """Send it; return the reply that comes in one piece."""
        answer = await self.wire.post(self.way.path, self.body)
        return read(self.check(answer), answer, self.way.shape, self.asked)

    async def streamed(self, watch: Watch) -> Reply:
        """Send it; tell `watch` what comes, and return the reply that it amounts to.

        Raises `AbortedError` where a turn ends without saying why, as aborted ones did up to 0.31.
        """
        made = Assembly()
        try:
            await self._watched(made, watch)
            return self._read(made)
        except EngineError as error:
            body = made.body()
            error.partial = torn(self.check(body), body, self.way.shape, self.asked)
            raise

    async def _watched(self, made: Assembly, watch: Watch) -> None:
        """Take the stream in, and tell of it as it comes."""
        async with aclosing(self.wire.stream(self.way.path, {**self.body, **STREAMED})) as events:
            async for event in events:
                check = self.check(event)
                pieces = [self._piece(piece) for piece in _pieces(check, event)]
                deltas = [self.way.shape.delta(check, _whole(piece)) for piece in pieces]
                _added(check, made, {**event, "choices": pieces})
                for delta in deltas:
                    if delta.ids or delta.text:
                        await watch(delta)

    def _piece(self, piece: dict[str, Any]) -> dict[str, Any]:
        """Return a chunk's choice with its ids, and log-probabilities for them alone."""
        return settled(piece if self.asked.echo else self.way.shape.identified(piece))

    def _read(self, made: Assembly) -> Reply:
        body = made.body()
        check = self.check(body)
        unended = [choice for choice in body["choices"] if choice.get("finish_reason") is None]
        if unended:
            raise AbortedError(
                f"{check.where}: the stream ended, and a turn in it did not: the engine gave it up",
                check.answer,
            )
        return read(check, body, self.way.shape, self.asked)


def _pieces(check: Check, event: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the choices of a chunk."""
    found = check.get({"choices": event.get("choices") or []}, "choices", list)
    return [check.get({"choice": piece}, "choice", dict) for piece in found]


def _added(check: Check, made: Assembly, chunk: dict[str, Any]) -> None:
    """Take in a chunk, or refuse one whose values do not fit those before."""
    try:
        made.add(chunk)
    except (AttributeError, TypeError, ValueError):
        check.fail("a chunk's values are of another kind than those before it, or than any should be")


def _whole(piece: dict[str, Any]) -> dict[str, Any]:
    """Return a chunk's choice in the form that a whole answer has."""
    return {**piece, "message": piece["delta"]} if "delta" in piece else piece
