"""What keeps sessions: a head, and a row for each committed turn that holds what is new in it.

Writing is owning: a session belongs to one gateway at a time, and each change of owner counts its epoch up.
Who writes names the epoch that it owns; a late owner's writes are refused and change nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Protocol

import attrs

from tito_core import TitoError


def beginning() -> int:
    """Return the epoch that a new session begins with: none that an earlier session of its name has had.

    So what its owner is late with is refused, as a late owner's writes always are.
    """
    return secrets.randbits(40)


class StoreError(TitoError):
    """The store failed, or could not be reached. Whether the last write was made is unknown."""


class GoneError(StoreError):
    """There is no such session: it was deleted, or nobody used it for too long."""


class FencedError(StoreError):
    """Another gateway owns the session now; nothing was written."""


LOST = "the store has lost a turn that others go on from; is it one that keeps what it has?"


class LostError(StoreError):
    """The store has lost a turn that others go on from; nothing was written."""

    def __init__(self) -> None:
        """Say what that says of the store."""
        super().__init__(LOST)


class BusyError(StoreError):
    """Another gateway is in the middle of a turn of the session, and alive."""


@attrs.frozen
class Claim:
    """A session that is owned."""

    epoch: int
    """What writes must name."""
    previous: int
    """The epoch before. Where it is the one that this gateway had, nobody has written since."""
    rows: int | None = None
    """How many rows there are, where the store may have lost some."""


@attrs.frozen
class StoredSession:
    """A session as it is stored."""

    head: bytes
    rows: Mapping[int, bytes]
    """By their places, which grow in the order of the commits and may leave some out."""


class Store(Protocol):
    """Keeps sessions. Everything that is acknowledged stays, whatever becomes of the process."""

    shared: bool
    """Whether several gateways may have it: a session is then claimed for each burst of calls."""

    async def check(self) -> None:
        """Ask whether the store answers; raises `StoreError` where it does not."""

    async def exists(self, name: str) -> bool:
        """Tell whether there is such a session."""

    async def create(self, name: str, head: bytes) -> bool:
        """Keep a new session; False where the name is taken, and then nothing is changed."""

    async def claim(self, name: str, *, anew: bool = False) -> Claim:
        """Own a session; raises `GoneError`, `BusyError`. An owner that holds it already claims it again.

        It may keep its epoch then; `anew` is for one that will read the session again, and refuses what is
        still written by what it has read before.
        """

    async def release(self, name: str, epoch: int) -> None:
        """Let another own the session. Whoever does not come to it loses it when its lease ends."""

    async def load(self, name: str) -> StoredSession:
        """Return a session; raises `GoneError`."""

    async def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        """Keep a row, which goes on from the row at `after` and could not be read without it.

        Raises `GoneError`, `FencedError`, and `LostError` where there is no such row. When this returns, the
        row is safe.
        """

    async def take_back(self, name: str, epoch: int, place: int) -> None:
        """Forget a row that nobody has received; raises as `put` does."""

    async def delete(self, name: str) -> bool:
        """Forget a session; False where there is none."""

    async def count(self) -> int:
        """Return how many sessions there are."""

    async def sweep(self, idle_seconds: float, used: Collection[str] = ()) -> int:
        """Forget the sessions that nobody has written or claimed for so long; return how many.

        Those that were `used` without either are as if claimed now.
        """

    async def aclose(self) -> None:
        """Let go of files and connections."""
