"""The sessions of one gateway: loaded when they are used, let go when they are idle, owned while in use."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

import anyio
import attrs

from .auth import new_name
from .limits import Caps
from .metrics import Metrics
from .refusals import RequestRefused, capped, not_found
from .session import Head, Session
from .store import BusyError, Claim, GoneError, Store, StoreError

PATIENCE_SECONDS = 15.0
"""How long a request waits for a session that another gateway uses: longer than a dead one's lease."""
KNOCK_SECONDS = 0.05
RENEW_SECONDS = 3.0
"""How often a lease is renewed: less than a third of its length."""
SWEEP_SECONDS = 60.0
"""How often what is idle is let go, at most."""


@attrs.define(eq=False)
class Sessions:
    """Opens, finds and deletes sessions."""

    store: Store
    caps: Caps
    metrics: Metrics
    patience: float = PATIENCE_SECONDS
    _loaded: dict[str, Session] = attrs.field(factory=dict, init=False)
    _gates: WeakValueDictionary[str, anyio.Lock] = attrs.field(factory=WeakValueDictionary, init=False)
    """One loads a session at a time; sessions do not wait for each other."""
    _count: int = attrs.field(default=0, init=False)
    _swept: float = attrs.field(factory=time.monotonic, init=False)
    """When the store was last told who is used: asking alone writes nothing there."""

    async def open(self, head: Head, name: str | None = None) -> str:
        """Return a session's name: a new session, or the one of that name, opened where it is not."""
        found = name or new_name()
        if self._count >= self.caps.sessions and not (name and await self.exists(name)):
            raise capped("sessions", self._count, self.caps.sessions, "--max-sessions")
        if await self.store.create(found, head.encoded()):
            self._count += 1
            self.metrics.sessions.set(self._count)
        return found

    async def exists(self, name: str) -> bool:
        """Tell whether there is a session of that name, without using it."""
        return await self.store.exists(name)

    @asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[Session]:
        """Use a session; raises `RequestRefused` where there is none, or another gateway holds it."""
        gate = self._gates.setdefault(name, anyio.Lock())
        async with gate:
            session = await self._entered(name)
            session.calls += 1
        session.used, session.generation = time.monotonic(), session.generation + 1
        try:
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                async with gate:
                    await self._left(session)

    async def delete(self, name: str) -> bool:
        """Forget a session, also for those who use it now."""
        self._loaded.pop(name, None)
        gone = await self.store.delete(name)
        self._count -= gone
        self._tell()
        return gone

    async def tend(self) -> None:
        """Renew leases, and let go of what is idle, for ever. A store that fails now may answer later."""
        due = 0.0
        while True:
            with suppress(StoreError):
                await self._renew()
                if time.monotonic() >= due:
                    due = time.monotonic() + min(SWEEP_SECONDS, self.caps.idle_seconds)
                    await self._sweep()
            self._tell()
            await anyio.sleep(RENEW_SECONDS)

    async def _entered(self, name: str) -> Session:
        """Return a session that this gateway owns, as it is stored now."""
        session = self._loaded.get(name)
        known = session is not None and not session.doubted
        if session is not None and known and (session.calls or not self.store.shared):
            return session
        claim = await self._claimed(name, anew=not known)
        if session is None or not known or not _is_as_stored(session, claim):
            session = await self._read(name, claim)
        session.epoch = claim.epoch
        self._loaded[name] = session
        return session

    async def _read(self, name: str, claim: Claim) -> Session:
        try:
            stored = await self.store.load(name)
        except GoneError:
            raise not_found(name) from None
        return Session.restored(name, stored, self.store, self.caps, claim.epoch)

    async def _claimed(self, name: str, *, anew: bool) -> Claim:
        """Return a claim, waiting for another gateway to be through with the session."""
        late = time.monotonic() + self.patience
        while True:
            try:
                return await self.store.claim(name, anew=anew)
            except GoneError:
                self._loaded.pop(name, None)
                raise not_found(name) from None
            except BusyError as busy:
                if time.monotonic() > late:
                    raise RequestRefused(503, "SessionBusyError", f"{busy}; ask again", final=False) from busy
            await anyio.sleep(KNOCK_SECONDS)

    async def _left(self, session: Session) -> None:
        session.calls -= 1
        session.used = time.monotonic()
        if session.calls == 0 and self.store.shared and self._loaded.get(session.name) is session:
            try:
                await self.store.release(session.name, session.epoch)
            except StoreError:  # its lease runs out by itself
                self._loaded.pop(session.name, None)

    async def _renew(self) -> None:
        """Claim again what is in use; a session that another gateway has had meanwhile is no longer ours."""
        for session in [one for one in self._loaded.values() if one.calls and self.store.shared]:
            try:
                claim = await self.store.claim(session.name)
            except StoreError:
                continue  # its writes will tell
            if claim.epoch != session.epoch and self._loaded.get(session.name) is session:
                del self._loaded[session.name]

    async def _sweep(self) -> None:
        """Let go of idle sessions, in memory and in the store."""
        late = time.monotonic() - min(self.caps.loaded_seconds, self.caps.idle_seconds)
        idle = [one.name for one in self._loaded.values() if not one.calls and one.used < late]
        for name in idle:
            self._loaded.pop(name, None)
        now = time.monotonic()
        used = [one.name for one in self._loaded.values() if one.calls or one.used >= self._swept]
        await self.store.sweep(self.caps.idle_seconds, used)
        self._swept = now
        self._count = await self.store.count()

    def _tell(self) -> None:
        self.metrics.sessions.set(self._count)
        self.metrics.loaded.set(len(self._loaded))


def _is_as_stored(session: Session, claim: Claim) -> bool:
    """Tell whether nobody else has written to a session, and the store has lost nothing of it."""
    ours = session.epoch in (claim.epoch, claim.previous)
    return ours and claim.rows in (None, len(session.commits))
