"""The store that a command names."""

from __future__ import annotations

from tito_core import InputError
from tito_io.extras import install

from .memory import MemoryStore
from .sqlite import SqliteStore
from .store import Store


def opened(address: str, *, idle_seconds: float, durable: bool = False) -> Store:
    """Return the store at an address: `memory`, `sqlite:PATH` or a `redis://` URL.

    >>> opened("memory", idle_seconds=60).shared
    False
    """
    kind, _, rest = address.partition(":")
    if address == "memory":
        return MemoryStore()
    if kind == "sqlite" and rest:
        return SqliteStore.open(rest, durable=durable)
    if kind in ("redis", "rediss", "unix"):
        return _redis(address, idle_seconds)
    raise InputError(f"--store is {address!r:.60}: give memory, sqlite:PATH or redis://HOST:PORT")


def _redis(url: str, idle_seconds: float) -> Store:
    try:
        from .redis import RedisStore  # noqa: PLC0415  # an extra, which one gateway alone does without
    except ImportError:
        raise InputError(f"--store redis:// needs the redis client: {install('redis')}") from None
    return RedisStore.to(url, life_seconds=idle_seconds)
