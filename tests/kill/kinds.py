"""What is killed: each kind has its own store and gateways, and a way to strike."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs

from tests.io.serve.redis_server import Redis, binary, redis_process
from tests.simulate.real import RealWorld, in_thread

LEASE_SECONDS = 2.0
BEFORE = f"""
import logging
from tito_io.serve import redis, sessions
logging.disable(logging.CRITICAL)
redis.RedisStore.to.__func__.__kwdefaults__["lease_seconds"] = {LEASE_SECONDS}
sessions.RENEW_SECONDS = {LEASE_SECONDS / 4}
"""
"""Runs before each gateway. With leases of ten seconds, clients would mostly wait for those of the dead."""
STILL_SECONDS = (1.1 * LEASE_SECONDS, 6.5)
"""How long a process stands still: longer than a lease, at times longer than Redis may take to answer."""


@attrs.frozen
class Kind:
    """What is killed.

    Attributes:
        name: Its name on the command line.
        what: The same in words.
        strike: Kills it once, and starts it again.
        gateways: How many gateways there are.
        redis: Whether they share a Redis server; else one has an SQLite file.
    """

    name: str
    what: str
    strike: Callable[[RealWorld, Redis | None], Awaitable[None]]
    gateways: int = 1
    redis: bool = True

    @property
    def possible(self) -> bool:
        """Whether this machine has what it needs."""
        return not self.redis or binary() is not None

    @contextmanager
    def store(self) -> Iterator[tuple[str, Redis | None]]:
        """Make a store for a block; yield its address, and the Redis server."""
        if self.redis:
            with redis_process(durable=True) as server:
                yield server.url, server
        else:
            with TemporaryDirectory(prefix="tito-kill-") as folder:
                yield f"sqlite:{Path(folder, 'sessions.db')}", None


async def kill_gateway(world: RealWorld, _: Redis | None) -> None:
    """Kill one of the gateways."""
    await world.killed(world.draws.below(len(world.gateways)))


async def kill_redis(world: RealWorld, redis: Redis | None) -> None:
    """Kill the Redis server, and start it again soon."""
    assert redis is not None
    redis.kill()
    await asyncio.sleep(world.draws.between(0, 0.5))
    await in_thread(redis.start)


async def stop_for_a_while(world: RealWorld, redis: Redis | None) -> None:
    """Let a gateway or the Redis server stand still for longer than a lease."""
    assert redis is not None
    assert redis.process is not None
    pid = world.draws.pick([redis.process.pid, *(one.process.process.pid for one in world.gateways)])
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(world.draws.between(*STILL_SECONDS))
    os.kill(pid, signal.SIGCONT)


KINDS = {
    one.name: one
    for one in (
        Kind("sqlite", "the gateway, on SQLite", kill_gateway, redis=False),
        Kind("redis", "the gateway, on Redis", kill_gateway),
        Kind("pair", "one of two gateways on one Redis", kill_gateway, gateways=2),
        Kind("redis-server", "the Redis server of two gateways", kill_redis, gateways=2),
        Kind("pause", "SIGSTOP of one of these three", stop_for_a_while, gateways=2),
    )
}
