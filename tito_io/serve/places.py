"""The places for turns at the engine: where there are too few, sessions take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import attrs


@attrs.define(eq=False)
class Places:
    """Places for turns that are sampled at once.

    Where turns wait, each session that has one gets a place in its turn. So a session with a hundred requests
    delays another's only one by a single turn, and not by a hundred.

    Attributes:
        free: How many places are free; while there are some, no turn waits.

    >>> async def order(*sessions):
    ...     places, found = Places(1), []
    ...     async def turn(session):
    ...         async with places.of(session):
    ...             found.append(session)
    ...             await anyio.sleep(0)
    ...     async with anyio.create_task_group() as group:
    ...         for session in sessions:
    ...             group.start_soon(turn, session)
    ...     return found
    >>> anyio.run(order, "a", "a", "a", "b")
    ['a', 'a', 'b', 'a']
    """

    free: int
    _waiting: dict[str | None, deque[anyio.Event]] = attrs.field(factory=dict, init=False)
    """By session, that first whose turn it is; none of them is empty."""

    @property
    def waiting(self) -> int:
        """How many turns wait."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def of(self, session: str | None) -> AsyncIterator[None]:
        """Hold a place for a turn of a session, once there is one."""
        await self._take(session)
        try:
            yield
        finally:
            self._leave()

    async def _take(self, session: str | None) -> None:
        if self.free:
            self.free -= 1
            return
        place = anyio.Event()
        self._waiting.setdefault(session, deque()).append(place)
        try:
            await place.wait()
        except BaseException:
            if place.is_set():  # it was given the place just then
                self._leave()
            else:
                self._forget(session, place)
            raise

    def _forget(self, session: str | None, place: anyio.Event) -> None:
        self._waiting[session].remove(place)
        if not self._waiting[session]:
            del self._waiting[session]

    def _leave(self) -> None:
        """Give a place to the next session, which then waits behind all others."""
        if not self._waiting:
            self.free += 1
            return
        session = next(iter(self._waiting))
        places = self._waiting.pop(session)
        places.popleft().set()
        if places:
            self._waiting[session] = places
