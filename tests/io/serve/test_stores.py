"""What every store keeps to: what is acknowledged stays, a late owner writes nothing, gone is gone."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn

import anyio
import anyio.abc
import fakeredis
import pytest

from tests.io.serve.redis_server import redis_server, wanted
from tito_core import InputError
from tito_io.serve.redis import RedisStore
from tito_io.serve.sqlite import UNSAVED, SqliteStore
from tito_io.serve.store import BusyError, FencedError, GoneError, LostError, Store, StoredSession, StoreError
from tito_io.serve.stores import MemoryStore, open_store

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # as redis' client
KINDS = ["memory", "sqlite", *(["redis"] if wanted() else [])]


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore()
    if request.param == "sqlite":
        made = SqliteStore.open(tmp_path / "sessions.db")
    if request.param == "redis":
        made = RedisStore.to(request.getfixturevalue("redis_url"))
    yield made
    with suppress(StoreError):
        for name in ("a" * 32, "b" * 32):
            await made.delete(name)
    await made.aclose()


A, B = "a" * 32, "b" * 32


async def test_a_store_says_what_there_is(store: Store) -> None:
    await store.check()
    assert await store.head(A) is None
    await store.create(A, b"head")
    assert (await store.head(A), await store.head(B)) == (b"head", None)


async def test_rows_come_back_in_their_places(store: Store) -> None:
    assert await store.create(A, b"head")
    assert not await store.create(A, b"other")
    epoch = (await store.claim(A)).epoch
    for place, row in ((0, b"zero"), (1, b"one"), (2, b"two")):
        await store.put(A, epoch, place, row)
    await store.take_back(A, epoch, 1)
    await store.put(A, epoch, 3, b"three")
    found = await store.load(A)
    assert found.head == b"head"
    assert list(found.rows.items()) == [(0, b"zero"), (2, b"two"), (3, b"three")]


async def test_sessions_do_not_see_each_other(store: Store) -> None:
    for name in (A, B):
        await store.create(name, name.encode())
        await store.put(name, (await store.claim(name)).epoch, 0, name.encode())
    assert (await store.load(A)).rows == {0: A.encode()}
    assert await store.count() == 2
    assert await store.delete(A)
    assert not await store.delete(A)
    assert (await store.load(B)).rows == {0: B.encode()}


async def test_what_is_not_there_is_gone(store: Store) -> None:
    with pytest.raises(GoneError):
        await store.load(A)
    with pytest.raises(GoneError):
        await store.claim(A)
    with pytest.raises(GoneError):
        await store.put(A, 1, 0, b"row")
    with pytest.raises(GoneError):
        await store.put_media(A, 1, {"digest": b"bytes"})
    with pytest.raises(GoneError):
        await store.media(A, ["digest"])
    with pytest.raises(GoneError):
        await store.media(A, [])
    with pytest.raises(GoneError):
        await store.take_back(A, 1, 0)
    await store.received(A, [0])
    assert not await store.delete(A)
    assert await store.count() == 0


async def test_an_error_of_a_store_says_what_became_of_the_write() -> None:
    assert str(GoneError()) == "there is no such session"
    assert str(FencedError()) == "another gateway owns the session now; nothing was written"
    lost = "the store has lost {} of this session; use a store that keeps its data"
    assert (str(LostError()), str(LostError("an image"))) == (lost.format("a turn"), lost.format("an image"))
    assert all(issubclass(kind, StoreError) for kind in (GoneError, FencedError, LostError, BusyError))


async def test_a_deleted_session_takes_no_rows(store: Store) -> None:
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    await store.delete(A)
    with pytest.raises(GoneError):
        await store.put(A, epoch, 0, b"row")


async def test_a_deleted_session_leaves_no_rows_to_the_next_one_of_its_name(store: Store) -> None:
    for name in (A, B):
        await store.create(name, b"head")
        epoch = (await store.claim(name)).epoch
        await store.put(name, epoch, 0, b"zero")
        await store.put(name, epoch, 1, b"one", after=0)
    await store.delete(A)
    assert await store.create(A, b"new")
    assert await store.load(A) == StoredSession(b"new", {})
    assert (await store.load(B)).rows == {0: b"zero", 1: b"one"}


async def test_a_session_of_the_same_name_takes_nothing_that_was_meant_for_the_one_before(
    store: Store,
) -> None:
    for _ in range(2):
        await store.create(A, b"head")
        late = (await store.claim(A)).epoch
        await store.delete(A)
        await store.create(A, b"head")
        await store.claim(A)
        with pytest.raises(FencedError):
            await store.put(A, late, 0, b"row")
        assert (await store.load(A)).rows == {}


async def test_another_epoch_writes_nothing(store: Store) -> None:
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    for wrong in (epoch - 1, epoch + 1):
        with pytest.raises(FencedError):
            await store.put(A, wrong, 0, b"row")
        with pytest.raises(FencedError):
            await store.take_back(A, wrong, 0)
    assert (await store.load(A)).rows == {}


async def test_a_place_is_written_once(store: Store) -> None:
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    await store.put(A, epoch, 0, b"first")
    with pytest.raises(StoreError):
        await store.put(A, epoch, 0, b"second")
    assert (await store.load(A)).rows == {0: b"first"}
    await store.put(A, epoch, 1, b"next")  # and the store goes on


async def test_a_row_is_kept_where_the_one_it_goes_on_from_is_and_nowhere_else(store: Store) -> None:
    for name in (A, B):
        await store.create(name, b"head")
    epoch, other = (await store.claim(A)).epoch, (await store.claim(B)).epoch
    await store.put(B, other, 1, b"another session's")
    await store.put(A, epoch, 0, b"zero")
    for after in (1, 2):  # no row, and the row itself
        with pytest.raises(LostError, match="the store has lost a turn"):
            await store.put(A, epoch, 2, b"two", after=after)
    await store.put(A, epoch, 1, b"one", after=0)
    await store.take_back(A, epoch, 1)
    with pytest.raises(LostError):
        await store.put(A, epoch, 2, b"two", after=1)
    with pytest.raises(FencedError):
        await store.put(A, epoch - 1, 2, b"two", after=1)  # whose session it is comes first
    await store.put(A, epoch, 2, b"two", after=0)  # and the store goes on
    assert (await store.load(A)).rows == {0: b"zero", 2: b"two"}


async def test_media_are_kept_once_and_go_with_their_session(store: Store) -> None:
    for name in (A, B):
        await store.create(name, b"head")
        epoch = (await store.claim(name)).epoch
        await store.put_media(name, epoch, {"cat": b"\x00\xffcat", "dog": name.encode()})
        await store.put_media(name, epoch, {"dog": b"another", "cow": b""})
        await store.put_media(name, epoch, {})
    assert (await store.load(A)).media == {"cat": 5, "dog": 32, "cow": 0}
    assert await store.media(A, ["cat", "dog", "map"]) == {"cat": b"\x00\xffcat", "dog": A.encode()}
    assert await store.media(A, []) == {}
    await store.delete(A)
    with pytest.raises(GoneError):
        await store.media(A, ["cat"])
    await store.create(A, b"head")
    assert (await store.load(A)).media == {}
    assert (await store.load(B)).media == {"cat": 5, "dog": 32, "cow": 0}


async def test_media_are_written_by_the_owner_alone(store: Store) -> None:
    with pytest.raises(GoneError):
        await store.put_media(A, 1, {"cat": b"cat"})
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    with pytest.raises(FencedError):
        await store.put_media(A, epoch + 1, {"cat": b"cat"})
    assert (await store.load(A)).media == {}


async def test_the_secret_is_the_first_one(store: Store) -> None:
    first = await store.secret(b"one\0")
    assert await store.secret(b"two") == first
    if not isinstance(store, RedisStore):  # whose server may have one of an earlier test
        assert first == b"one\0"


async def test_a_row_is_unreceived_until_a_client_has_it(store: Store) -> None:
    for name in (A, B):
        await store.create(name, b"head")
        epoch = (await store.claim(name)).epoch
        for place in range(4):
            await store.put(name, epoch, place, b"row")
    assert (await store.load(A)).unreceived == {0, 1, 2, 3}
    await store.received(A, [0, 2])
    await store.received(A, [2, 9])  # once more, and one that is not there
    await store.received(A, [])
    epoch = (await store.claim(A)).epoch
    await store.take_back(A, epoch, 3)
    assert (await store.load(A)).unreceived == {1}
    assert (await store.load(B)).unreceived == {0, 1, 2, 3}
    await store.delete(A)
    await store.received(A, [1])
    assert await store.head(A) is None
    await store.create(A, b"new")
    assert (await store.load(A)).unreceived == frozenset()


# One file, one gateway.


async def test_a_closed_store_is_one_file(tmp_path: Path) -> None:
    """It can be copied: the log is in it."""
    store = SqliteStore.open(tmp_path / "s.db")
    await store.create(A, b"head")
    assert (tmp_path / "s.db-wal").stat().st_size
    await store.aclose()
    assert not (tmp_path / "s.db-wal").exists()
    assert not store.shared  # it is still referred to


async def test_a_folder_that_takes_no_file_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tito_io.serve.sqlite.os.open", full)
    with pytest.raises(InputError, match=r"no file can be made in .* \(No space left on device\); name"):
        SqliteStore.open(tmp_path / "s.db")


async def test_a_file_that_was_refused_is_nobody_s(tmp_path: Path) -> None:
    """Who names a better one need not start again."""
    file = tmp_path / "s.db"
    file.write_text("something else, and longer than the header of a database " * 9)
    with pytest.raises(InputError, match="file is not a database; name another file") as refused:
        SqliteStore.open(file)
    file.unlink()
    await SqliteStore.open(file).aclose()
    assert refused.tb is not None  # which keeps what was opened first


async def test_a_file_says_which_version_it_is(tmp_path: Path) -> None:
    await SqliteStore.open(tmp_path / "s.db").aclose()
    file = sqlite3.connect(tmp_path / "s.db")
    assert file.execute("PRAGMA user_version").fetchone() == (1,)
    file.close()


async def test_a_file_keeps_its_sessions(tmp_path: Path) -> None:
    first = SqliteStore.open(tmp_path / "s.db")
    await first.create(A, b"head")
    epoch = (await first.claim(A)).epoch
    await first.put(A, epoch, 0, b"row")
    await first.aclose()
    second = SqliteStore.open(tmp_path / "s.db", durable=True)
    assert (await second.load(A)).rows == {0: b"row"}
    assert (await second.claim(A)).previous == epoch
    await second.aclose()


async def test_a_file_has_one_owner(tmp_path: Path) -> None:
    first = SqliteStore.open(tmp_path / "s.db")
    with pytest.raises(InputError, match="another gateway"):
        SqliteStore.open(tmp_path / "s.db")
    await first.aclose()
    await SqliteStore.open(tmp_path / "s.db").aclose()


async def test_a_symbolic_link_and_its_target_are_one_store(tmp_path: Path) -> None:
    """They have one owner, and the file is private also where the link was there first."""
    target, link = tmp_path / "target.db", tmp_path / "links" / "link.db"
    link.parent.mkdir()
    link.symlink_to(target)
    for first, second in ((link, target), (target, link)):
        store = SqliteStore.open(first)
        with pytest.raises(InputError, match="another gateway"):
            SqliteStore.open(second)
        await store.aclose()
    assert target.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in link.parent.iterdir()] == ["link.db"]


async def test_a_file_with_hard_links_is_refused(tmp_path: Path) -> None:
    """SQLite would keep a log beside each name, so each gateway would see its own turns alone."""
    await SqliteStore.open(tmp_path / "one.db").aclose()
    os.link(tmp_path / "one.db", tmp_path / "two.db")
    for name in ("one.db", "two.db"):
        with pytest.raises(InputError, match=r"several names \(hard links\).*; delete the other names"):
            SqliteStore.open(tmp_path / name)
    (tmp_path / "two.db").unlink()
    await SqliteStore.open(tmp_path / "one.db").aclose()


async def test_idle_sessions_are_swept(tmp_path: Path) -> None:
    now = [0.0]
    store = SqliteStore.open(tmp_path / "s.db")
    store.clock = lambda: now[0]
    for name, at in ((A, 0), (B, 50)):
        now[0] = at
        await store.create(name, b"head")
        await store.put(name, (await store.claim(name)).epoch, 0, b"row")
    now[0] = 70
    assert await store.sweep(60) == 1
    assert await store.count() == 1
    assert (await store.load(B)).rows == {0: b"row"}
    assert await store.create(A, b"head")
    assert await store.load(A) == StoredSession(b"head", {})
    await store.aclose()


async def test_a_file_keeps_its_secret_and_what_nobody_has_received(tmp_path: Path) -> None:
    first = SqliteStore.open(tmp_path / "s.db")
    secret = await first.secret(b"one")
    await first.create(A, b"head")
    epoch = (await first.claim(A)).epoch
    for place in (0, 1):
        await first.put(A, epoch, place, b"row")
    await first.received(A, [0])
    await first.aclose()
    second = SqliteStore.open(tmp_path / "s.db")
    assert await second.secret(b"two") == secret
    assert (await second.load(A)).unreceived == {1}
    await second.aclose()


async def test_a_file_of_before_has_received_everything(tmp_path: Path) -> None:
    first = SqliteStore.open(tmp_path / "s.db")
    await first.create(A, b"head")
    await first.put(A, (await first.claim(A)).epoch, 0, b"row")
    for table in ("unreceived", "secrets"):
        first._db.execute(f"DROP TABLE {table}")
    await first.aclose()
    second = SqliteStore.open(tmp_path / "s.db")
    assert await second.load(A) == StoredSession(b"head", {0: b"row"})
    assert await second.secret(b"new") == b"new"
    await second.aclose()


async def test_a_delete_that_fails_halfway_deletes_nothing(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "s.db")
    await store.create(A, b"head")
    await store.put(A, (await store.claim(A)).epoch, 0, b"row")

    def refuse(action: int, table: str | None, *_: object) -> int:
        refused = action == sqlite3.SQLITE_DELETE and table == "sessions"
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    store._db.set_authorizer(refuse)
    with pytest.raises(StoreError):
        await store.delete(A)
    with pytest.raises(StoreError):
        await store.sweep(-60)
    store._db.set_authorizer(None)
    assert (await store.load(A)).rows == {0: b"row"}
    await store.aclose()


async def test_who_is_used_is_not_swept(tmp_path: Path) -> None:
    now = [0.0]
    file = SqliteStore.open(tmp_path / "s.db")
    file.clock = lambda: now[0]
    for store in (file, MemoryStore(clock=lambda: now[0])):
        now[0] = 0
        for name in (A, B):
            await store.create(name, b"head")
        now[0] = 70
        assert await store.sweep(60, used=[A, "gone"]) == 1
        assert (await store.head(A), await store.head(B)) == (b"head", None)
        now[0] = 129
        assert await store.sweep(60) == 0
        now[0] = 131
        assert await store.sweep(60) == 1
    await file.aclose()


async def test_a_session_on_a_server_lives_as_long_as_it_is_owned() -> None:
    store = RedisStore.to("redis://127.0.0.1:1", life_seconds=0.1, lease_seconds=10.0)
    assert store._life() == 10_000
    await store.sweep(3600)
    assert store._life() == 3_600_000
    await store.aclose()


async def test_another_program_s_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all" * 100)
    with pytest.raises(InputError, match="name another file"):
        SqliteStore.open(tmp_path / "text.db")
    db = sqlite3.connect(tmp_path / "other.db")
    db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(InputError, match="version"):
        SqliteStore.open(tmp_path / "other.db")


async def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*misspelt; make it, or name another file"):
        SqliteStore.open(tmp_path / "misspelt" / "s.db")
    assert os.listdir(tmp_path) == []  # noqa: PTH208  # a look of its own, which waits for nobody


@pytest.mark.parametrize("address", ["", "sqlite:", "mysql://x", "redis"])
async def test_an_address_is_one_of_three(address: str) -> None:
    with pytest.raises(InputError, match="--store"):
        open_store(address, idle_seconds=1, durable=False)


@pytest.mark.parametrize(
    "address",
    [
        *("Redis://:secret@127.0.0.1:6379", "redis+ssl://:secret@h", ":secret@h", "h:6379?password=secret"),
        *("redis://:secret/x@127.0.0.1", "redis://h:1/0?password=secret&db=x"),
    ],
)
async def test_an_address_that_is_wrong_is_said_without_its_password(address: str) -> None:
    with pytest.raises(InputError, match=r"--store: .*redis://HOST:PORT") as wrong:
        open_store(address, idle_seconds=1, durable=False)
    assert "secret" not in str(wrong.value)


async def test_nobody_answers_where_there_is_no_redis(unused: int) -> None:
    store = RedisStore.to(f"redis://127.0.0.1:{unused}/0")
    for asking in (store.create(A, b"head"), store.check(), store.head(A)):
        with pytest.raises(StoreError, match="check that the Redis server runs"):
            await asking
    await store.aclose()


async def test_a_server_that_never_answers_is_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs accepts connections; without a limit each request of a client would wait for it."""
    monkeypatch.setattr("tito_io.serve.redis.ANSWER_SECONDS", 0.1)

    async def silent(client: anyio.abc.SocketStream) -> None:
        async with client:
            await anyio.sleep_forever()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, silent)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610  # no database is asked
        store = RedisStore.to(f"redis://127.0.0.1:{port}/0")
        assert store.client.connection_pool.connection_kwargs["socket_connect_timeout"] == 0.1
        for asking in (store.head(A), store.claim(A), store.count()):
            with anyio.fail_after(2), pytest.raises(StoreError, match="the store failed: TimeoutError"):
                await asking
        await store.aclose()
        group.cancel_scope.cancel()


@pytest.fixture
def unused() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


KILLED = """
import anyio, sys
from tito_io.serve.sqlite import SqliteStore
async def main():
    store = SqliteStore.open(sys.argv[1])
    await store.create("a" * 32, b"head")
    epoch = (await store.claim("a" * 32)).epoch
    for place in range(10**6):
        await store.put("a" * 32, epoch, place, b"row %d" % place)
        sys.stdout.write("%d\\n" % place)
        sys.stdout.flush()
anyio.run(main)
"""


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)  # noqa: ASYNC220  # it is killed at once
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(200)]
    process.kill()
    told += [int(line) for line in process.stdout.read().split()]
    process.stdout.close()
    process.wait()
    store = SqliteStore.open(path)
    rows = (await store.load(A)).rows
    await store.aclose()
    assert all(rows[place] == b"row %d" % place for place in told)
    assert len(rows) - len(told) in (0, 1)  # one may be stored and not told


# Several gateways, one server.


async def test_scripts_let_one_gateway_write_at_a_time() -> None:
    """`fakeredis` runs the scripts that a server would run."""
    server = fakeredis.FakeServer()
    keys = fakeredis.FakeAsyncRedis(server=server)
    one, other = (RedisStore(fakeredis.FakeAsyncRedis(server=server)) for _ in range(2))
    await one.create(A, b"head")
    first = await one.claim(A)
    await one.put(A, first.epoch, 0, b"mine")
    with pytest.raises(BusyError):
        await other.claim(A)
    await one.release(A, first.epoch)
    second = await other.claim(A)
    assert second.previous == first.epoch
    await other.secret(b"secret")
    parts = [f"tito:session:{{{A}}}:{part}".encode() for part in ("head", "lease", "rows")]
    assert sorted(await keys.keys()) == [b"tito:secret", *parts]  # other versions look there
    assert set(await keys.hkeys(parts[0])) == {b"data", b"epoch", b"owner", b"unreceived:0"}
    await keys.aclose()
    with pytest.raises(FencedError):
        await one.put(A, first.epoch, 1, b"late")
    assert await other.delete(A)
    with pytest.raises(GoneError):
        await one.claim(A)
    await one.aclose()
    await other.aclose()


async def test_media_that_outlived_their_session_do_not_come_back_with_its_name() -> None:
    """A server ends keys by itself, each for itself."""
    client = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer())
    store = RedisStore(client)
    await store.create(A, b"head")
    await store.put_media(A, (await store.claim(A)).epoch, {"cat": b"cat"})
    assert (await store.load(A)).media == {"cat": 3}
    await client.delete(f"tito:session:{{{A}}}:head")
    await store.create(A, b"head")
    assert (await store.load(A)).media == {}
    await store.aclose()


@pytest.mark.parametrize("use", ["claim", "put", "put_media", "take_back"])
async def test_each_use_makes_all_of_a_session_live_longer(use: str) -> None:
    client = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer())
    store = RedisStore(client, life_seconds=100)
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    await store.put(A, epoch, 0, b"row")
    await store.put(A, epoch, 1, b"row")
    await store.put_media(A, epoch, {"cat": b"cat"})
    store.life_seconds = 1000
    uses: dict[str, tuple[Any, ...]] = {
        "claim": (),
        "put": (epoch, 2, b"row"),
        "put_media": (epoch, {"dog": b"dog"}),
        "take_back": (epoch, 1),
    }
    await getattr(store, use)(A, *uses[use])
    ends = [await client.pttl(f"tito:session:{{{A}}}:{part}") for part in ("head", "rows", "media")]
    assert min(ends) > 900_000
    await store.aclose()


async def test_a_lease_ends_by_itself_and_not_before() -> None:
    client = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer())
    one, other = RedisStore(client, lease_seconds=0.3), RedisStore(client, lease_seconds=0.3)
    await one.create(A, b"head")
    await one.claim(A)
    with pytest.raises(BusyError, match="another gateway is in the middle of a turn of this session"):
        await other.claim(A)
    await anyio.sleep(0.35)
    await other.claim(A)
    await client.aclose()


@asynccontextmanager
async def two(url: str, **options: float) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    one, other = RedisStore.to(url, **options), RedisStore.to(url, **options)
    yield one, other
    await one.delete(A)
    await one.aclose()
    await other.aclose()


needs_redis = pytest.mark.skipif(not wanted(), reason="there is no redis-server: TITO_REDIS=1 demands one")


@needs_redis
async def test_media_make_all_of_a_session_live_longer(redis_url: str) -> None:
    """A head that outlives its rows would be a session without turns."""
    store = RedisStore.to(redis_url, life_seconds=100)
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    await store.put(A, epoch, 0, b"row")
    store.life_seconds = 1000
    await store.put_media(A, epoch, {"cat": b"cat"})
    ends = [await store.client.pttl(f"tito:session:{{{A}}}:{part}") for part in ("head", "rows", "media")]
    assert min(ends) > 900_000
    await store.delete(A)
    await store.aclose()


@needs_redis
async def test_gateways_of_one_server_have_one_secret(redis_url: str) -> None:
    async with two(redis_url) as (one, other):
        assert await one.secret(b"one") == await other.secret(b"two")
        await one.client.delete("tito:secret")  # the server lost its data: a gateway gives it back
        assert await other.secret(b"kept") == await one.secret(b"one") == b"kept"


@needs_redis
async def test_one_owner_at_a_time_and_a_late_one_is_fenced(redis_url: str) -> None:
    async with two(redis_url, lease_seconds=0.3) as (one, other):
        await one.create(A, b"head")
        first = await one.claim(A)
        await one.put(A, first.epoch, 0, b"mine")
        with pytest.raises(BusyError):
            await other.claim(A)
        await anyio.sleep(0.4)  # the first one's lease runs out: it counts as dead
        second = await other.claim(A)
        assert second.previous == first.epoch
        with pytest.raises(FencedError):
            await one.put(A, first.epoch, 1, b"late")
        await other.put(A, second.epoch, 1, b"theirs")
        assert (await one.load(A)).rows == {0: b"mine", 1: b"theirs"}


@needs_redis
async def test_a_released_session_moves_at_once_and_one_that_nobody_took_is_the_same(redis_url: str) -> None:
    async with two(redis_url) as (one, other):
        await one.create(A, b"head")
        first = await one.claim(A)
        await one.release(A, first.epoch)
        again = await one.claim(A)
        assert again.epoch == first.epoch == again.previous
        await one.release(A, first.epoch)
        theirs = await other.claim(A)
        await one.release(A, first.epoch)  # a late release takes nothing from the new owner
        with pytest.raises(BusyError):
            await one.claim(A)
        await other.release(A, theirs.epoch)
        back = await one.claim(A)
        assert back.previous == theirs.epoch != first.epoch


@needs_redis
async def test_nothing_is_written_twice_where_the_connection_breaks_after_it(redis_url: str) -> None:
    """The server has the row, and its answer gets lost: whoever asked is told that nobody knows."""
    async with two(redis_url) as (one, other), cutting(redis_url) as (url, cuts):
        await one.create(A, b"head")
        claim = await one.claim(A)
        broken = RedisStore.to(url)
        cuts.append("the next one")
        with pytest.raises(StoreError, match="ConnectionError"):
            await broken.put(A, claim.epoch, 0, b"row")
        assert (await other.load(A)).rows == {0: b"row"}
        await broken.aclose()


@asynccontextmanager
async def cutting(url: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Stand before a server; for each cut let a script through, and break off before its answer."""
    theirs, cuts = int(url.rsplit(":", 1)[1].partition("/")[0]), list[str]()

    async def passed(client: anyio.abc.SocketStream) -> None:
        async with client, await anyio.connect_tcp("127.0.0.1", theirs) as server:
            with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
                while True:
                    asked = await client.receive()
                    await server.send(asked)
                    answer = await server.receive()
                    if cuts and b"EVAL" in asked:
                        cuts.pop()
                        return
                    await client.send(answer)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, passed)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610  # no database is asked
        yield f"redis://127.0.0.1:{port}/0", cuts
        group.cancel_scope.cancel()


async def test_redis_is_there_where_it_is_asked_for() -> None:
    if os.environ.get("TITO_REDIS") == "1":
        assert shutil.which(os.environ.get("TITO_REDIS_SERVER", "redis-server"))


async def in_a_thread(*_: Any) -> NoReturn:
    raise AssertionError("a thread is used")


@pytest.mark.parametrize("durable", [False, True])
async def test_a_row_is_written_without_a_thread_unless_it_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool
) -> None:
    store = SqliteStore.open(tmp_path / "s.db", durable=durable)
    await store.create(A, b"head")
    with monkeypatch.context() as patch:
        patch.setattr("anyio.to_thread.run_sync", in_a_thread)
        waits = pytest.raises(AssertionError, match="thread") if durable else nullcontext()
        with waits:
            epoch = (await store.claim(A)).epoch
            await store.put(A, epoch, 0, b"row 0")
            await store.received(A, [0])
            await store.put(A, epoch, 1, b"row 1", after=0)
            await store.take_back(A, epoch, 1)
            assert await store.head(A) == b"head"
    found = await store.load(A)
    assert (found.rows, found.unreceived) == ({} if durable else {0: b"row 0"}, frozenset())
    await store.aclose()


async def test_a_new_session_is_opened_without_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where hundreds begin at once, each would wait for a free thread."""
    store = SqliteStore.open(tmp_path / "s.db")
    monkeypatch.setattr("anyio.to_thread.run_sync", in_a_thread)
    assert await store.create(A, b"head")
    await store.put(A, (await store.claim(A)).epoch, 0, b"row 0")
    assert await store.create(B, b"other")
    assert await store.load(B) == StoredSession(b"other", {}, frozenset(), {})
    with pytest.raises(AssertionError, match="thread"):  # it may have many rows
        await store.load(A)
    with pytest.raises(GoneError):
        await store.load("never opened")
    monkeypatch.undo()
    await store.aclose()


async def test_a_row_waits_in_a_thread_while_another_program_writes_to_the_file(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "s.db")
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with anyio.create_task_group() as group:
        group.start_soon(store.put, A, epoch, 0, b"row 0")
        await anyio.wait_all_tasks_blocked()
        assert group.cancel_scope.cancel_called is False
        other.execute("ROLLBACK")
    assert (await store.load(A)).rows == {0: b"row 0"}
    other.close()
    await store.aclose()


async def test_the_log_is_copied_into_the_file_as_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tito_io.serve.sqlite.UNSAVED", 10_000)
    store = SqliteStore.open(tmp_path / "s.db")
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    before = (tmp_path / "s.db").stat().st_size
    sizes = []
    for place in range(60):
        await store.put(A, epoch, place, bytes(4_000))
        sizes.append((tmp_path / "s.db-wal").stat().st_size)
    assert (tmp_path / "s.db").stat().st_size - before > 55 * 4_000
    assert sizes[59] == sizes[19]  # it is written again from its beginning
    await store.aclose()


async def test_a_row_that_is_written_without_a_thread_copies_no_log(tmp_path: Path) -> None:
    """To copy it waits for the disk, and all other requests would wait, too."""
    store = SqliteStore.open(tmp_path / "s.db")
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    for place in range(UNSAVED // 100_000):
        await store.put(A, epoch, place, bytes(100_000))
    assert (tmp_path / "s.db-wal").stat().st_size > UNSAVED - 100_000
    assert (tmp_path / "s.db").stat().st_size < 100_000
    await store.sweep(60.0, [A])
    assert (tmp_path / "s.db").stat().st_size > UNSAVED - 100_000
    await store.aclose()


async def test_the_log_is_copied_for_media_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tito_io.serve.sqlite.UNSAVED", 10_000)
    store = SqliteStore.open(tmp_path / "s.db")
    await store.create(A, b"head")
    epoch = (await store.claim(A)).epoch
    before = (tmp_path / "s.db").stat().st_size
    for place in range(60):
        await store.put_media(A, epoch, {f"{place}-{one}": bytes(2_000) for one in range(2)})
    assert (tmp_path / "s.db").stat().st_size - before > 55 * 4_000
    await store.aclose()


# What a time and an epoch are.


async def test_an_epoch_grows_with_each_owner_and_names_the_one_before(store: Store) -> None:
    await store.create(A, b"head")
    first = await store.claim(A, anew=True)
    second = await store.claim(A, anew=True)
    assert second.epoch > first.epoch
    assert (first.previous, second.previous) == (first.epoch - 1, first.epoch)


async def test_a_session_without_turns_is_deleted_like_any_other(store: Store) -> None:
    await store.create(A, b"head")
    assert await store.delete(A)
    assert not await store.delete(A)


async def test_a_session_that_was_idle_for_just_the_time_stays(tmp_path: Path) -> None:
    now = [0.0]
    file = SqliteStore.open(tmp_path / "s.db")
    file.clock = lambda: now[0]
    for store in (file, MemoryStore(clock=lambda: now[0])):
        now[0] = 0
        await store.create(A, b"head")
        now[0] = 60
        assert (await store.sweep(60), await store.count()) == (0, 1)
        now[0] = 61
        assert (await store.sweep(60), await store.count()) == (1, 0)
    await file.aclose()


async def test_memory_ends_with_its_store() -> None:
    store = MemoryStore()
    await store.create(A, b"head")
    await store.aclose()
    with pytest.raises(StoreError):
        await store.head(A)


@pytest.mark.parametrize(
    ("version", "tables", "ours"),
    [
        (0, False, True),
        (1, False, True),
        (1, True, True),
        (0, True, False),
        (2, False, False),
        (2, True, False),
    ],
)
async def test_only_an_empty_file_or_one_of_this_version_is_a_store(
    tmp_path: Path, version: int, tables: bool, ours: bool
) -> None:
    file = sqlite3.connect(tmp_path / "s.db")
    file.execute(f"PRAGMA user_version = {version}")
    if tables:
        file.execute("CREATE TABLE another (name TEXT)")
    file.commit()
    file.close()
    if ours:
        await SqliteStore.open(tmp_path / "s.db").aclose()
    else:
        with pytest.raises(
            InputError, match=f"it has version {version}, and this gateway reads 1; name another"
        ):
            SqliteStore.open(tmp_path / "s.db")


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("redis://:1", "redis://localhost:1"),
        ("redis://:secret@nosuch.invalid/3", "redis://nosuch.invalid:6379"),
        ("unix:///nowhere/at/all.sock", "unix:///nowhere/at/all.sock"),
    ],
)
async def test_a_server_that_does_not_answer_is_named_without_its_password(address: str, named: str) -> None:
    store = open_store(address, idle_seconds=60, durable=False)
    with pytest.raises(StoreError) as failed:
        await store.check()
    said = "the store failed: ConnectionError; check that the Redis server runs"
    assert str(failed.value) == f"--store {named}: {said}"
    await store.aclose()


@pytest.mark.parametrize("address", ["redis://127.0.0.1:port", "redis://127.0.0.1/0?db=x"])
async def test_an_address_of_a_server_that_is_none_says_how_one_looks(address: str) -> None:
    with pytest.raises(InputError, match=r"^--store: .*; give redis://HOST:PORT/NUMBER$"):
        open_store(address, idle_seconds=60, durable=False)


async def test_a_session_lives_as_long_as_it_is_owned_at_least() -> None:
    """The server takes milliseconds, and no fewer than one."""
    store = RedisStore.to("redis://", life_seconds=5.0, lease_seconds=7.5)
    assert (store.life_seconds, store.lease_seconds, store._life()) == (5.0, 7.5, 7500)
    assert RedisStore.to("redis://", life_seconds=60.0)._life() == 60_000
    assert RedisStore.to("redis://", life_seconds=0.0, lease_seconds=0.0)._life() == 1
