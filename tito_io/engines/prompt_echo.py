"""When a prompt's ids need not come back: what is sent with every turn is then read by nobody but the engine.

A way of asking that repeated a prompt rightly takes ids, and after that the engine's count of them is enough.
A reply that does not hold together has the next prompt repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs

from .protocol import InvalidReplyError, Reply

W = TypeVar("W")


@attrs.define
class Proven(Generic[W]):
    """The ways that have repeated a prompt; what a way is, an engine's adapter knows."""

    ways: set[W] = attrs.field(factory=set)

    async def held_to(self, way: W, coming: Awaitable[Reply], repeated: Callable[[Reply], bool]) -> Reply:
        """Return a reply, and take note of whether a prompt came back with it, and rightly."""
        try:
            reply = await coming
        except InvalidReplyError:
            self.ways.discard(way)
            raise
        if repeated(reply):
            self.ways.add(way)
        return reply
