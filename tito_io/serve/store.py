"""The protocol of a store of sessions, its errors, and its return values.

A stored session is a head and one row per committed turn. Only the session's owner writes, and one gateway
owns it at a time. Each change of owner raises the session's epoch, and a write names the epoch that its
writer owns. A late owner's write therefore fails and changes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import attrs

from tito_core import TitoError


class StoreError(TitoError):
    """The store failed, or cannot be reached. Whether the last write took place is unknown."""


class GoneError(StoreError):
    """There is no such session: it was deleted, or unused for too long."""

    def __init__(self) -> None:
        """Say that the session is missing."""
        super().__init__("there is no such session")


class FencedError(StoreError):
    """Another gateway owns the session now; nothing was written."""

    def __init__(self, message: str = "another gateway owns the session now; nothing was written") -> None:
        """Take a message where more is known."""
        super().__init__(message)


class LostError(StoreError):
    """The store has lost a part of a session; nothing was written."""

    def __init__(self, what: str = "a turn") -> None:
        """Say what that means for the store."""
        super().__init__(f"the store has lost {what} of this session; use a store that keeps its data")


class BusyError(StoreError):
    """Another gateway is in the middle of a turn of the session, and alive."""


@attrs.frozen
class Claim:
    """The ownership of a session.

    Attributes:
        epoch: What writes must name.
        previous: The epoch before. If this gateway owned that one, the session has not changed since.
        rows: Number of rows, from stores that can lose some; else None.
    """

    epoch: int
    previous: int
    rows: int | None = None


@attrs.frozen
class StoredSession:
    """A session as it is stored.

    Attributes:
        head: What the session was opened with.
        rows: One per turn by its place. Places grow in the order of the commits; some may be missing.
        unreceived: Places of rows whose turns no client is known to have.
        media: The sizes of the session's media by digest, in bytes.
    """

    head: bytes
    rows: Mapping[int, bytes]
    unreceived: frozenset[int] = frozenset()
    media: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class SessionSummary:
    """The facts about a stored session that a list shows.

    Attributes:
        name: The session's id.
        head: What it was opened with.
        idle: Seconds since its last write or claim.
        turns: Number of rows.
    """

    name: str
    head: bytes
    idle: float
    turns: int


class Store(Protocol):
    """Keeps sessions. What a method has acknowledged survives the end of the process."""

    shared: bool
    """Whether several gateways may use the store; a session is then claimed for each burst of calls."""

    async def check(self) -> None:
        """Ask whether the store answers; raises `StoreError` where it does not."""

    async def secret(self, proposed: bytes) -> bytes:
        """Return the store's secret, which never changes; a store without one keeps the `proposed` one."""

    async def head(self, name: str) -> bytes | None:
        """Return what a session was opened with; None where there is no such session."""

    async def create(self, name: str, head: bytes) -> bool:
        """Add a new session. Returns False, and changes nothing, where the name is taken."""

    async def claim(self, name: str, *, anew: bool = False) -> Claim:
        """Own a session; raises `GoneError`, `BusyError`. Its owner may claim it again.

        The owner may keep its epoch then. With `anew`, which precedes reading the session again, it gets a
        new epoch: late writes of what it had read before then fail.
        """

    async def release(self, name: str, epoch: int) -> None:
        """Let another gateway own the session. Without this, the ownership ends with its lease."""

    async def load(self, name: str) -> StoredSession:
        """Return a session; raises `GoneError`."""

    async def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        """Add a row, which continues the row at `after` and could not be read without it.

        Raises `GoneError`, `FencedError`, and `LostError` where the row at `after` is missing. When this
        returns, the row is safe. Until `received` it counts as unreceived.
        """

    async def put_media(self, name: str, epoch: int, media: Mapping[str, bytes]) -> None:
        """Add media by digest; those that are there stay. Raises `GoneError`, `FencedError`.

        Their rows come later: a row must not name a medium that the store does not have. They go with the
        session.
        """

    async def media(self, name: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return media of a session by digest, without those that it does not have."""

    async def received(self, name: str, places: Sequence[int]) -> None:
        """Note that a client has the turns of some rows; rows that are gone make no difference."""

    async def take_back(self, name: str, epoch: int, place: int) -> None:
        """Delete a row that no client has received; raises as `put` does."""

    async def delete(self, name: str) -> bool:
        """Delete a session; False where there is no such session."""

    async def count(self) -> int:
        """Return the number of sessions."""

    async def newest(self, most: int, wanted: Callable[[bytes], bool]) -> list[SessionSummary]:
        """Return the sessions whose head is `wanted`, those used last first, at most so many; read no row."""

    async def sweep(self, idle_seconds: float, used: Collection[str] = ()) -> int:
        """Delete sessions without a write or claim for so long; return how many.

        Sessions in `used` count as claimed now.
        """

    async def aclose(self) -> None:
        """Close files and connections."""


def first_epoch() -> int:
    """Return a new session's first epoch: random, so that no earlier session of its name has had it.

    A write that is meant for a deleted session of the same name then fails like any late owner's write.
    """
    return secrets.randbits(40)
