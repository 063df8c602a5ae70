"""A store on a Redis server that several gateways share; each session has one owner at a time.

An owner has a lease, which it renews while it has calls in flight; a dead owner's lease ends. Each new owner
raises the epoch in the same step that gives it the lease. A write names its epoch, and the server refuses the
write of a late owner. Every step is one script, so that nothing happens between its reads and its writes.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Any, Self, cast

import attrs
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tito_core import InputError

from .store import (
    BusyError,
    Claim,
    FencedError,
    GoneError,
    LostError,
    SessionSummary,
    StoredSession,
    StoreError,
    first_epoch,
)

PREFIX = "tito:session:"
SECRET = "tito:secret"  # noqa: S105  # the name of a key
UNRECEIVED = b"unreceived:"
"""Begins the names of those fields of a head that stand for unreceived rows."""
LEASE_SECONDS = 10.0
ANSWER_SECONDS = 5.0
"""How long the server may take to accept a connection, and to answer."""
AT_ONCE = 1000
"""How many sessions a walk over the server's keys asks for in one request."""
LIFE_SECONDS = 30 * 86_400.0
"""How long an unused session is kept by default."""

CLAIM = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {-1, 0, 0} end
local rows = redis.call('HLEN', KEYS[2])
local holder = redis.call('GET', KEYS[3])
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch'))
if holder and holder ~= ARGV[1] then return {-2, 0, 0} end
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
for _, at in ipairs({1, 2, 4}) do redis.call('PEXPIRE', KEYS[at], ARGV[3]) end
local ours = redis.call('HGET', KEYS[1], 'owner') == ARGV[1]
if ours and ARGV[4] == '0' then return {epoch, epoch, rows} end
redis.call('HSET', KEYS[1], 'epoch', epoch + 1, 'owner', ARGV[1])
return {epoch + 1, epoch, rows}
"""
"""Keys: head, rows, lease, media. Arguments: owner, lease, life, whether anew.

The last owner keeps its epoch, unless it claims anew.
"""
PUT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -2 end
if ARGV[5] ~= '' and redis.call('HEXISTS', KEYS[2], ARGV[5]) == 0 then return -3 end
local mark = 'unreceived:' .. ARGV[2]
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[2], ARGV[2]) redis.call('HDEL', KEYS[1], mark)
else
  if redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[4]) == 0 then return -2 end
  redis.call('HSET', KEYS[1], mark, '')
end
for at = 1, 3 do redis.call('PEXPIRE', KEYS[at], ARGV[3]) end
return 1
"""
"""Keys: head, rows, media. Arguments: epoch, place, life, row, the place of the row before.

An empty row deletes the place. An empty place before means that the row continues no other.
"""
PUT_MEDIA = """
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -2 end
redis.call('HSETNX', KEYS[3], ARGV[3], ARGV[4])
for at = 1, 3 do redis.call('PEXPIRE', KEYS[at], ARGV[2]) end
return 1
"""
"""Keys: head, rows, media. Arguments: epoch, life, the digest, the bytes.

All of them live equally long: a head without its rows would be a session that has lost its turns.
"""
SIZES = """
local found = {}
for _, digest in ipairs(redis.call('HKEYS', KEYS[1])) do
  found[#found + 1] = digest
  found[#found + 1] = redis.call('HSTRLEN', KEYS[1], digest)
end
return found
"""
"""Keys: media. It returns digests with their sizes."""
FAILURES: Mapping[int, type[StoreError]] = {-1: GoneError, -2: FencedError, -3: LostError}
RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
CREATE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[1], 'data', ARGV[1], 'epoch', ARGV[3], 'owner', '')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
"""Keys: head, media, which may live longer than their session. Arguments: data, life, first epoch."""


@attrs.define(eq=False)
class RedisStore:
    """Sessions on a Redis server. Its own persistence decides what survives the server's end.

    Attributes:
        client: The connections.
        owner: This gateway's name in leases.
        lease_seconds: How long a session stays owned without renewal.
        life_seconds: How long the server keeps a session after its last use.
    """

    client: redis.asyncio.Redis
    shared: bool = attrs.field(default=True, init=False)
    owner: str = attrs.field(factory=lambda: secrets.token_hex(8))
    lease_seconds: float = LEASE_SECONDS
    life_seconds: float = LIFE_SECONDS

    @classmethod
    def to(
        cls, url: str, *, life_seconds: float = LIFE_SECONDS, lease_seconds: float = LEASE_SECONDS
    ) -> Self:
        """Return the store at `url`. Nothing is sent yet; raises `InputError` where it is not a Redis URL.

        The client must not retry, as it does by default. If the connection broke after a row was written,
        the second write would find the row and take it for another gateway's.
        """
        try:
            client = redis.asyncio.Redis.from_url(
                url,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=ANSWER_SECONDS,
                socket_connect_timeout=ANSWER_SECONDS,
            )
        except ValueError:  # its text may quote the password
            raise InputError(
                "--store: the Redis server's address cannot be read (in a password write %2F for /); give "
                "redis://HOST:PORT/NUMBER"
            ) from None
        return cls(client, lease_seconds=lease_seconds, life_seconds=life_seconds)

    async def check(self) -> None:
        """Ask whether the server answers; the error names its address, which no client sees."""
        try:
            await self._answer(self.client.ping())
        except StoreError as error:
            known = self.client.connection_pool.connection_kwargs  # the URL holds a password
            address = f"redis://{known.get('host', 'localhost')}:{known.get('port', 6379)}"
            if "path" in known:
                address = f"unix://{known['path']}"
            raise StoreError(f"--store {address}: {error}") from error

    async def secret(self, proposed: bytes) -> bytes:
        """Return the secret, which does not expire."""
        await self._answer(self.client.set(SECRET, proposed, nx=True))
        return bytes(await self._answer(self.client.get(SECRET)))

    async def head(self, name: str) -> bytes | None:
        """Return a session's head."""
        head = await self._answer(self.client.hget(_key(name, "head"), "data"))
        return None if head is None else bytes(head)

    async def create(self, name: str, head: bytes) -> bool:
        """Add a new session; False where the name is taken."""
        keys = [_key(name, "head"), _key(name, "media")]
        return bool(await self._script(CREATE, keys, head, self._life(), first_epoch()))

    async def claim(self, name: str, *, anew: bool = False) -> Claim:
        """Own a session for the time of a lease; claiming it again renews the lease."""
        lease, life = _millis(self.lease_seconds), self._life()
        epoch, previous, rows = await self._script(CLAIM, _keys(name), self.owner, lease, life, int(anew))
        if epoch == -1:
            raise GoneError
        if epoch == -2:  # noqa: PLR2004  # the script's code for it
            raise BusyError("another gateway is in the middle of a turn of this session")
        return Claim(epoch, previous, rows)

    async def release(self, name: str, epoch: int) -> None:  # noqa: ARG002  # the lease has the owner's name
        """Let another gateway own the session."""
        await self._script(RELEASE, [_key(name, "lease")], self.owner)

    async def load(self, name: str) -> StoredSession:
        """Return a session."""
        head = await self._answer(self.client.hgetall(_key(name, "head")))
        if b"data" not in head:
            raise GoneError
        stored = await self._answer(self.client.hgetall(_key(name, "rows")))
        rows = {int(place): row for place, row in stored.items()}
        marks = (field for field in head if field.startswith(UNRECEIVED))
        unreceived = frozenset(int(mark.removeprefix(UNRECEIVED)) for mark in marks)
        found = await self._script(SIZES, [_key(name, "media")])
        sizes = {digest.decode(): size for digest, size in zip(found[::2], found[1::2], strict=True)}
        return StoredSession(head[b"data"], dict(sorted(rows.items())), unreceived, sizes)

    async def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        """Add a row."""
        await self._write(PUT, name, epoch, place, self._life(), row, "" if after is None else after)

    async def put_media(self, name: str, epoch: int, media: Mapping[str, bytes]) -> None:
        """Add media, each in a request of its own: together they may be longer than a server takes."""
        for digest, data in media.items():
            await self._write(PUT_MEDIA, name, epoch, self._life(), digest, data)

    async def media(self, name: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return media."""
        names = list(digests)
        if await self.head(name) is None:
            raise GoneError
        stored = await self._answer(self.client.hmget(_key(name, "media"), names)) if names else []
        return {digest: data for digest, data in zip(names, stored, strict=True) if data is not None}

    async def received(self, name: str, places: Sequence[int]) -> None:
        """Note that a client has rows."""
        marks = [UNRECEIVED + b"%d" % place for place in places]
        if marks:  # the server takes no empty list
            await self._answer(self.client.hdel(_key(name, "head"), *marks))

    async def take_back(self, name: str, epoch: int, place: int) -> None:
        """Delete a row."""
        await self.put(name, epoch, place, b"")

    async def delete(self, name: str) -> bool:
        """Delete a session."""
        return int(await self._answer(self.client.delete(*_keys(name)))) > 0

    async def count(self) -> int:
        """Return the number of sessions, which takes a walk over the server's keys."""

        async def count() -> int:
            return sum([1 async for _ in self._names()])

        return int(await self._answer(count()))

    async def newest(self, most: int, wanted: Callable[[bytes], bool]) -> list[SessionSummary]:
        """Return the sessions that were used last, which takes a walk over the server's keys.

        The server keeps no time of use: it follows from how long it still keeps a session.
        """

        async def newest() -> list[SessionSummary]:
            heads = [one async for one in self._heads() if wanted(one[2])]
            found = nlargest(most, heads, key=itemgetter(0, 1))
            async with self.client.pipeline(transaction=False) as turns:
                for _, name, _ in found:
                    turns.hlen(_key(name, "rows"))
                counts = await turns.execute()
            life = self._life()
            return [
                SessionSummary(name, head, max(life - left, 0) / 1000, rows)
                for (left, name, head), rows in zip(found, counts, strict=True)
            ]

        found: list[SessionSummary] = await self._answer(newest())
        return found

    async def _names(self) -> AsyncIterator[str]:
        """Yield the names of all sessions."""
        pattern = _key("*", "head")
        begin, end = pattern.encode().split(b"*")
        async for key in self.client.scan_iter(match=pattern, count=AT_ONCE):
            yield key.removeprefix(begin).removesuffix(end).decode()

    async def _heads(self) -> AsyncIterator[tuple[int, str, bytes]]:
        """Yield how many milliseconds the server still keeps each session, its name, and its head."""
        names = list({name async for name in self._names()})  # a walk may meet a key twice
        for place in range(0, len(names), AT_ONCE):
            some = names[place : place + AT_ONCE]
            async with self.client.pipeline(transaction=False) as asked:
                for name in some:
                    asked.hget(_key(name, "head"), "data")
                    asked.pttl(_key(name, "head"))
                answers = await asked.execute()
            for name, head, left in zip(some, answers[::2], answers[1::2], strict=True):
                if head is not None:  # it was deleted meanwhile
                    yield left, name, head

    async def sweep(self, idle_seconds: float, used: Collection[str] = ()) -> int:  # noqa: ARG002  # claimed
        """Set how long sessions live; the server deletes them itself."""
        self.life_seconds = idle_seconds
        return 0

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    def _life(self) -> int:
        """Return how long the server keeps a session that is claimed now: at least as long as it is owned."""
        return _millis(max(self.life_seconds, self.lease_seconds))

    async def _write(self, script: str, name: str, *values: Any) -> None:
        result = await self._script(script, [_key(name, part) for part in ("head", "rows", "media")], *values)
        if result in FAILURES:
            raise FAILURES[result]

    async def _script(self, script: str, keys: list[str], *values: Any) -> Any:
        return await self._answer(self.client.eval(script, len(keys), *keys, *values))

    async def _answer(self, reply: Any) -> Any:
        try:
            return await cast("Awaitable[Any]", reply)
        except (RedisError, OSError) as error:
            text = f"the store failed: {type(error).__name__}; check that the Redis server runs"
            raise StoreError(text) from error


def _key(name: str, part: str) -> str:
    """Return a key; the braces keep a session's keys on one server of a cluster."""
    return f"{PREFIX}{{{name}}}:{part}"


def _keys(name: str) -> list[str]:
    return [_key(name, part) for part in ("head", "rows", "lease", "media")]


def _millis(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
