"""The stores of sessions: the one in memory, and the choice by address."""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import attrs

from tito_core import InputError
from tito_io.extras import install

from .sqlite import SqliteStore, connected
from .store import Store


@attrs.define(eq=False)
class MemoryStore(SqliteStore):
    """Sessions in memory, which end with the process: for tests, and for rollouts that collect at once.

    Attributes:
        clock: Returns the time in seconds; for `sweep`.
    """

    path: Path = attrs.field(default=Path(":memory:"), init=False)
    db: sqlite3.Connection = attrs.field(factory=lambda: connected(":memory:"), init=False)
    _owner: sqlite3.Connection = attrs.field(init=False)
    durable: bool = attrs.field(default=False, init=False)
    clock: Callable[[], float] = time.monotonic

    def __attrs_post_init__(self) -> None:
        self._owner = self.db  # no other process can open it
        weakref.finalize(self, self.db.close)


def open_store(address: str, *, idle_seconds: float, durable: bool) -> Store:
    """Return the store at an address: `memory`, `sqlite:PATH` or a `redis://` URL.

    Args:
        address: What `--store` says.
        idle_seconds: How long Redis keeps an unused session.
        durable: Whether SQLite waits for the disk.

    >>> open_store("memory", idle_seconds=60, durable=False).shared
    False
    """
    kind, _, rest = address.partition(":")
    if address == "memory":
        return MemoryStore()
    if kind == "sqlite" and rest:
        return SqliteStore.open(rest, durable=durable)
    if kind not in ("redis", "rediss", "unix"):
        named = f" not {kind}" if kind.isalpha() else ""  # the rest may hold a password
        raise InputError(f"--store: give memory, sqlite:PATH or redis://HOST:PORT,{named}")
    try:
        from .redis import RedisStore  # noqa: PLC0415  # an extra, which a single gateway does not need
    except ImportError:
        raise InputError(f"--store redis:// needs the redis client: {install('redis')}") from None
    return RedisStore.to(address, life_seconds=idle_seconds)
