"""A store that ends with the process: for tests, and for rollouts that collect at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import attrs

from .store import Claim, FencedError, GoneError, LostError, StoredSession, beginning


@attrs.define
class _Kept:
    head: bytes
    touched: float
    epoch: int = attrs.field(factory=beginning)
    rows: dict[int, bytes] = attrs.field(factory=dict)


@attrs.define
class MemoryStore:
    """Sessions in a dict. Gateways of one process may share it, each of them trusted to take turns."""

    shared: bool = attrs.field(default=False, init=False)
    clock: Callable[[], float] = time.monotonic
    _sessions: dict[str, _Kept] = attrs.field(factory=dict, init=False)

    async def check(self) -> None:
        """Do nothing: it is here."""

    async def exists(self, name: str) -> bool:
        """Tell whether there is such a session."""
        return name in self._sessions

    async def create(self, name: str, head: bytes) -> bool:
        """Keep a new session; False where the name is taken."""
        if name in self._sessions:
            return False
        self._sessions[name] = _Kept(head, self.clock())
        return True

    async def claim(self, name: str, *, anew: bool = False) -> Claim:  # noqa: ARG002  # each claim is
        """Own a session."""
        kept = self._kept(name)
        kept.epoch, kept.touched = kept.epoch + 1, self.clock()
        return Claim(kept.epoch, kept.epoch - 1)

    async def release(self, name: str, epoch: int) -> None:
        """Do nothing: an owner of this store is never in another's way."""

    async def load(self, name: str) -> StoredSession:
        """Return a session."""
        kept = self._kept(name)
        return StoredSession(kept.head, dict(sorted(kept.rows.items())))

    async def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        """Keep a row."""
        kept = self._owned(name, epoch)
        if after is not None and after not in kept.rows:
            raise LostError
        if place in kept.rows:
            raise FencedError(f"the session has a row {place} already: another gateway wrote it")
        kept.rows[place], kept.touched = row, self.clock()

    async def take_back(self, name: str, epoch: int, place: int) -> None:
        """Forget a row."""
        self._owned(name, epoch).rows.pop(place, None)

    async def delete(self, name: str) -> bool:
        """Forget a session."""
        return self._sessions.pop(name, None) is not None

    async def count(self) -> int:
        """Return how many sessions there are."""
        return len(self._sessions)

    async def sweep(self, idle_seconds: float, used: Collection[str] = ()) -> int:
        """Forget sessions that were idle for long."""
        now = self.clock()
        late = now - idle_seconds
        for name in used:
            if name in self._sessions:
                self._sessions[name].touched = now
        old = [name for name, kept in self._sessions.items() if kept.touched < late]
        for name in old:
            del self._sessions[name]
        return len(old)

    async def aclose(self) -> None:
        """Forget everything."""
        self._sessions.clear()

    def _kept(self, name: str) -> _Kept:
        if name not in self._sessions:
            raise GoneError("there is no such session")
        return self._sessions[name]

    def _owned(self, name: str, epoch: int) -> _Kept:
        kept = self._kept(name)
        if kept.epoch != epoch:
            raise FencedError("another gateway owns the session now; nothing was written")
        return kept
