"""The sessions of one gateway: loaded when used, unloaded when idle, owned while in use."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

import anyio
import attrs

from tito_core import InputError

from .auth import RequestedSession, new_id, new_secret
from .logs import LOG, short_id
from .metrics import Metrics
from .refusals import GatewayLimits, RequestRefused, limit_reached, not_found
from .session import Session, SessionHead
from .store import BusyError, Claim, GoneError, SessionSummary, Store, StoreError

SEPARATE = (
    "session %s: opened for another agent with the API key of session %s; --share-keys gives agents with the "
    "same key one session"
)
PATIENCE_SECONDS = 15.0
"""How long a request waits for a session that another gateway uses: longer than a dead one's lease."""
RETRY_SECONDS = 0.05
RENEW_SECONDS = 3.0
"""How often a lease is renewed: less than a third of its length."""
SWEEP_SECONDS = 60.0
"""How often idle sessions are looked for, at most."""


@attrs.define(eq=False)
class Sessions:
    """Opens, finds and deletes sessions.

    Attributes:
        store: Where sessions are stored.
        limits: What they may use.
        metrics: Where they are counted.
        patience: Seconds that a request waits for another gateway.
        loaded: The sessions in memory, by their names.
    """

    store: Store
    limits: GatewayLimits
    metrics: Metrics
    patience: float = PATIENCE_SECONDS
    loaded: dict[str, Session] = attrs.field(factory=dict, init=False)
    _gates: WeakValueDictionary[str, anyio.Lock] = attrs.field(factory=WeakValueDictionary, init=False)
    """One lock per session: a request loads it while others wait, and sessions do not wait for each other."""
    _answering: WeakValueDictionary[tuple[str, bytes], anyio.Lock] = attrs.field(
        factory=WeakValueDictionary, init=False
    )
    """One lock per idempotency key and body of requests in flight."""
    _count: int = attrs.field(default=0, init=False)
    _secret: bytes = attrs.field(default=b"", init=False)
    _swept: float = attrs.field(init=False)
    """When the store last learned which sessions are in use; a request that only reads writes nothing."""

    @_swept.default
    def _begun(self) -> float:
        return time.monotonic()

    async def secret(self) -> bytes:
        """Return the store's secret, with which the ids of named sessions are computed."""
        if not self._secret:
            self._secret = await self.store.secret(new_secret())
        return self._secret

    async def find(self, asked: RequestedSession, created: float | None = None) -> str:
        """Return the id of a requested session; raises `RequestRefused` where another key owns it.

        Args:
            asked: What the request says.
            created: The time now, to open the session if it is missing; None to open nothing.
        """
        name, head = await self._found(asked)
        while head is None and asked.opens and created is not None:
            await self.open(SessionHead(created=created, owner=asked.owner, agent=asked.agent), name)
            if name == asked.own_name:
                LOG.warning(SEPARATE, short_id(name), short_id(asked.name))
            name, head = await self._found(asked)  # two agents may have opened it at once
        if head is not None and asked.owner is not None and head.owner not in (None, asked.owner):
            raise not_found(name)
        return name

    async def _found(self, asked: RequestedSession) -> tuple[str, SessionHead | None]:
        """Return the id of a requested session, and its head where it is there and matters."""
        if not (asked.opens or asked.owner):
            return asked.name, None
        head = await self._head(asked.name)
        if asked.own_name is None or (head is not None and head.agent == asked.agent):
            return asked.name, head
        own = await self._head(asked.own_name)
        return (asked.name, None) if head is None and own is None else (asked.own_name, own)

    async def _head(self, name: str) -> SessionHead | None:
        data = await self.store.head(name)
        return None if data is None else SessionHead.of(data)

    async def open(self, head: SessionHead, name: str | None = None) -> str:
        """Return the id of a new session, called `name` or at random; one that is there stays as it is."""
        session, limit = name or new_id(), self.limits.sessions
        if self._count >= limit:
            raise limit_reached("sessions", self._count, limit, "--max-sessions")
        if await self.store.create(session, head.encoded()):
            self._count += 1
            self.metrics.sessions.set(self._count)
        return session

    async def exists(self, name: str) -> bool:
        """Return whether there is a session of that name, without using it."""
        return await self.store.head(name) is not None

    async def newest(self, owner: str | None, most: int) -> list[SessionSummary]:
        """Return the sessions of an owner that were used last; those that belong to no key for None."""
        return await self.store.newest(most, lambda head: _owned(head, owner))

    @asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[Session]:
        """Use a session; raises `RequestRefused` where it is missing, or another gateway keeps using it."""
        gate = self._gates.setdefault(name, anyio.Lock())
        async with gate:
            session = await self._enter(name)
            session.calls += 1
        session.used, session.generation = time.monotonic(), session.generation + 1
        try:
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                async with gate:
                    await self._leave(session)

    @asynccontextmanager
    async def answering(self, name: str, repeated: bytes | None) -> AsyncIterator[None]:
        """Wait while another request of a session with the same idempotency key and body is answered.

        If that one ends with a turn, the turn is the answer to this request, too, and is not sampled again.
        If its turn is taken back, this request samples its own.

        Args:
            name: The session's id.
            repeated: A digest of key and body; None for requests without a key, which never wait.
        """
        if repeated is None:
            yield
            return
        async with self._answering.setdefault((name, repeated), anyio.Lock()):
            yield

    async def delete(self, name: str) -> bool:
        """Delete a session, also while requests use it."""
        async with self._gates.setdefault(name, anyio.Lock()):  # a request may be loading it
            self.loaded.pop(name, None)
            gone = await self.store.delete(name)
        self._count -= gone
        self._show_counts()
        return gone

    async def maintain(self) -> None:
        """Renew leases and unload idle sessions, forever. A store that fails now may answer later."""
        due = 0.0
        while True:
            with suppress(StoreError):
                await self._renew()
                if time.monotonic() >= due:
                    due = time.monotonic() + min(SWEEP_SECONDS, self.limits.idle_seconds)
                    await self._sweep()
                    # A server that lost its data gets the secret back: all of its gateways use the same one.
                    self._secret = self._secret and await self.store.secret(self._secret)
            self._show_counts()
            await anyio.sleep(RENEW_SECONDS)

    async def _enter(self, name: str) -> Session:
        """Return a session that this gateway owns, as it is stored now."""
        session = self.loaded.get(name)
        known = session is not None and not session.must_reload
        if session is not None and known and (session.calls or not self.store.shared):
            if self.store.shared and not await self.exists(name):  # another gateway has deleted it
                self.loaded.pop(name, None)
                raise not_found(name)
            return session
        claim = await self._claim(name, anew=not known)
        # It is as stored if no other gateway wrote to it, and the store lost nothing of it.
        ours = session is not None and session.epoch in (claim.epoch, claim.previous)
        if session is None or not (known and ours and claim.rows in (None, len(session.commits))):
            try:
                stored = await self.store.load(name)
            except GoneError:
                raise not_found(name) from None
            session = Session.restored(name, stored, self.store, self.limits, claim.epoch)
            LOG.debug("session %s: loaded, turns: %d", short_id(name), len(session.commits))
        session.epoch = claim.epoch
        self.loaded[name] = session
        return session

    async def _claim(self, name: str, *, anew: bool) -> Claim:
        """Return a claim; wait while another gateway uses the session."""
        late = time.monotonic() + self.patience
        while True:
            try:
                return await self.store.claim(name, anew=anew)
            except GoneError:
                self.loaded.pop(name, None)
                raise not_found(name) from None
            except BusyError as busy:
                if time.monotonic() > late:
                    raise RequestRefused(503, "session_busy", f"{busy}; ask again", final=False) from busy
            await anyio.sleep(RETRY_SECONDS)

    async def _leave(self, session: Session) -> None:
        session.calls -= 1
        session.used = time.monotonic()
        if session.calls == 0 and self.store.shared and self.loaded.get(session.name) is session:
            try:
                await self.store.release(session.name, session.epoch)
            except StoreError:  # the lease ends by itself
                self.loaded.pop(session.name, None)

    async def _renew(self) -> None:
        """Claim again what is in use; unload a session that another gateway has owned since."""
        for session in [one for one in self.loaded.values() if one.calls and self.store.shared]:
            try:
                claim = await self.store.claim(session.name)
            except StoreError:
                continue  # the session's next write will fail, too
            if claim.epoch != session.epoch and self.loaded.get(session.name) is session:
                del self.loaded[session.name]

    async def _sweep(self) -> None:
        """Unload idle sessions, and delete those that were idle for long."""
        late = time.monotonic() - min(self.limits.loaded_seconds, self.limits.idle_seconds)
        idle = [one.name for one in self.loaded.values() if not one.calls and one.used < late]
        for name in idle:
            self.loaded.pop(name, None)
            LOG.debug("session %s: unloaded, idle", short_id(name))
        now = time.monotonic()
        used = [one.name for one in self.loaded.values() if one.calls or one.used >= self._swept]
        await self.store.sweep(self.limits.idle_seconds, used)
        self._swept = now
        self._count = await self.store.count()

    def _show_counts(self) -> None:
        self.metrics.sessions.set(self._count)
        self.metrics.sessions_loaded.set(len(self.loaded))


def _owned(head: bytes, owner: str | None) -> bool:
    """Return whether a stored session is this owner's. Of one that cannot be read the owner is not known."""
    try:
        return SessionHead.of(head).owner == owner
    except InputError:
        return False
