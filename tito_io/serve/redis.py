"""A store that several gateways share: sessions move between them, and each has one owner at a time.

An owner holds a lease while it has calls in flight and renews it; of a dead one it runs out. Each new owner
counts the epoch up, in the same step that gives it the lease, and a write names its epoch: what a late owner
writes is refused by the server. Every step is one script, so nothing comes between its looking and writing.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Collection
from typing import Any, Self, cast

import attrs
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tito_core import InputError

from .store import BusyError, Claim, FencedError, GoneError, LostError, StoredSession, StoreError, beginning

PREFIX = "tito:session:"
LEASE_SECONDS = 10.0
ANSWER_SECONDS = 5.0
"""How long the server may take to let in, and to answer."""
PLENTY = 30 * 86_400.0
"""How long a session is kept where nobody says."""

CLAIM = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {-1, 0, 0} end
local rows = redis.call('HLEN', KEYS[2])
local holder = redis.call('GET', KEYS[3])
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch'))
if holder and holder ~= ARGV[1] then return {-2, 0, 0} end
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3]) redis.call('PEXPIRE', KEYS[2], ARGV[3])
local ours = redis.call('HGET', KEYS[1], 'owner') == ARGV[1]
if ours and ARGV[4] == '0' then return {epoch, epoch, rows} end
redis.call('HSET', KEYS[1], 'epoch', epoch + 1, 'owner', ARGV[1])
return {epoch + 1, epoch, rows}
"""
"""Keys: head, rows, lease. Arguments: owner, lease, life, whether anew.

An owner that nobody followed keeps its epoch, but where it claims anew.
"""
PUT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -2 end
if ARGV[5] ~= '' and redis.call('HEXISTS', KEYS[2], ARGV[5]) == 0 then return -3 end
if ARGV[4] ~= '' and redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[4]) == 0 then return -2 end
if ARGV[4] == '' then redis.call('HDEL', KEYS[2], ARGV[2]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3]) redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
"""
"""Keys: head, rows. Arguments: epoch, place, life, row, the place of the row before.

An empty row takes back; an empty place is none.
"""
RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
CREATE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'data', ARGV[1], 'epoch', ARGV[3], 'owner', '')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
"""Keys: head. Arguments: data, life, the epoch to begin with."""


@attrs.define(eq=False)
class RedisStore:
    """Sessions on a Redis server. Its own persistence decides what survives the server's end."""

    client: redis.asyncio.Redis
    shared: bool = attrs.field(default=True, init=False)
    owner: str = attrs.field(factory=lambda: secrets.token_hex(8))
    """This gateway's name in leases."""
    lease_seconds: float = LEASE_SECONDS
    life_seconds: float = PLENTY
    """How long the server keeps a session after its last use."""

    @classmethod
    def to(cls, url: str, *, life_seconds: float = PLENTY, lease_seconds: float = LEASE_SECONDS) -> Self:
        """Make ready; nothing is sent yet. Raises `InputError` for no Redis URL.

        Nothing is asked twice, as the client would of itself: a row that was written before the connection
        broke would be taken for another gateway's.
        """
        try:
            client = redis.asyncio.Redis.from_url(
                url,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=ANSWER_SECONDS,
                socket_connect_timeout=ANSWER_SECONDS,
            )
        except ValueError as error:
            raise InputError(f"--store: {error}; give redis://HOST:PORT/NUMBER") from error
        return cls(client, lease_seconds=lease_seconds, life_seconds=life_seconds)

    async def check(self) -> None:
        """Ask the server for a sign of life; the error names it, which is for who named it and no client."""
        try:
            await self._asked(self.client.ping())
        except StoreError as error:
            raise StoreError(f"--store {self._address()}: {error}") from error

    async def exists(self, name: str) -> bool:
        """Tell whether there is such a session."""
        return bool(await self._asked(self.client.exists(_head(name))))

    async def create(self, name: str, head: bytes) -> bool:
        """Keep a new session; False where the name is taken."""
        return bool(await self._script(CREATE, [_head(name)], head, self._life(), beginning()))

    async def claim(self, name: str, *, anew: bool = False) -> Claim:
        """Own a session for as long as the lease lasts; claimed again, it lasts anew."""
        keys = [_head(name), _rows(name), _lease(name)]
        lease, life = _millis(self.lease_seconds), self._life()
        epoch, previous, rows = await self._script(CLAIM, keys, self.owner, lease, life, int(anew))
        if epoch == -1:
            raise GoneError("there is no such session")
        if epoch == -2:  # noqa: PLR2004  # the script's word for it
            raise BusyError("another gateway is in the middle of a turn of this session")
        return Claim(epoch, previous, rows)

    async def release(self, name: str, epoch: int) -> None:  # noqa: ARG002  # the lease has the owner's name
        """Let another own the session."""
        await self._script(RELEASE, [_lease(name)], self.owner)

    async def load(self, name: str) -> StoredSession:
        """Return a session."""
        head = await self._asked(self.client.hget(_head(name), "data"))
        if head is None:
            raise GoneError("there is no such session")
        found = await self._asked(self.client.hgetall(_rows(name)))
        rows = {int(place): row for place, row in found.items()}
        return StoredSession(head, dict(sorted(rows.items())))

    async def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        """Keep a row."""
        await self._write(name, epoch, place, row, "" if after is None else after)

    async def take_back(self, name: str, epoch: int, place: int) -> None:
        """Forget a row."""
        await self._write(name, epoch, place, b"", "")

    async def delete(self, name: str) -> bool:
        """Forget a session."""
        gone = await self._asked(self.client.delete(_head(name), _rows(name), _lease(name)))
        return int(gone) > 0

    async def count(self) -> int:
        """Return how many sessions there are: a walk over the server's keys."""
        found = 0
        try:
            async for _ in self.client.scan_iter(match=f"{PREFIX}*:head", count=1000):
                found += 1
        except RedisError as error:
            raise _failure(error) from error
        return found

    async def sweep(self, idle_seconds: float, used: Collection[str] = ()) -> int:  # noqa: ARG002  # claimed
        """Do nothing but take note of how long sessions live: the server forgets them by itself."""
        self.life_seconds = idle_seconds
        return 0

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    def _address(self) -> str:
        """Return where the server is, without its password."""
        known = self.client.connection_pool.connection_kwargs
        if "path" in known:
            return f"unix://{known['path']}"
        return f"redis://{known.get('host', 'localhost')}:{known.get('port', 6379)}"

    def _life(self) -> int:
        """Return how long the server keeps a session that is claimed now: no shorter than it is owned."""
        return _millis(max(self.life_seconds, self.lease_seconds))

    async def _write(self, name: str, epoch: int, place: int, row: bytes, after: int | str) -> None:
        keys, life = [_head(name), _rows(name)], self._life()
        done = await self._script(PUT, keys, epoch, place, life, row, after)
        if done == -1:
            raise GoneError("there is no such session")
        if done == -2:  # noqa: PLR2004  # the script's word for it
            raise FencedError("another gateway owns the session now; nothing was written")
        if done == -3:  # noqa: PLR2004  # likewise
            raise LostError

    async def _script(self, script: str, keys: list[str], *values: Any) -> Any:
        return await self._asked(self.client.eval(script, len(keys), *keys, *values))

    async def _asked(self, answer: Any) -> Any:
        try:
            return await cast("Awaitable[Any]", answer)
        except (RedisError, OSError) as error:
            raise _failure(error) from error


def _failure(error: Exception) -> StoreError:
    return StoreError(f"the store failed: {type(error).__name__}; is the Redis server there?")


def _head(name: str) -> str:
    """Return a key; the braces keep a session's keys on one server of a cluster."""
    return f"{PREFIX}{{{name}}}:head"


def _rows(name: str) -> str:
    return f"{PREFIX}{{{name}}}:rows"


def _lease(name: str) -> str:
    return f"{PREFIX}{{{name}}}:lease"


def _millis(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
