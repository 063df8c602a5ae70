"""What every store keeps to: what is acknowledged stays, a late owner writes nothing, gone is gone."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from itertools import pairwise
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
    epoch = await begun(store, rows=3)
    assert not await store.create(A, b"other")
    await store.take_back(A, epoch, 1)
    await store.put(A, epoch, 3, b"three")
    with pytest.raises(StoreError):
        await store.put(A, epoch, 3, b"again")  # a place is written once
    found = await store.load(A)
    assert found.head == b"head"
    assert list(found.rows.items()) == [(0, b"row 0"), (2, b"row 2"), (3, b"three")]


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
    for asking in (
        store.load(A),
        store.claim(A),
        store.put(A, 1, 0, b"row"),
        store.put_media(A, 1, {"digest": b"bytes"}),
        store.media(A, ["digest"]),
        store.media(A, []),
        store.take_back(A, 1, 0),
    ):
        with pytest.raises(GoneError):
            await asking
    await store.received(A, [0])
    assert not await store.delete(A)
    assert await store.count() == 0


async def test_an_error_of_a_store_says_what_became_of_the_write() -> None:
    assert str(GoneError()) == "there is no such session"
    assert str(FencedError()) == "another gateway owns the session now; nothing was written"
    lost = "the store has lost {} of this session; use a store that keeps its data"
    assert (str(LostError()), str(LostError("an image"))) == (lost.format("a turn"), lost.format("an image"))
    assert all(issubclass(kind, StoreError) for kind in (GoneError, FencedError, LostError, BusyError))


async def test_a_deleted_session_leaves_no_rows_to_the_next_one_of_its_name(store: Store) -> None:
    for name in (A, B):
        await begun(store, name, rows=2)
    await store.delete(A)
    assert await store.create(A, b"new")
    assert await store.load(A) == StoredSession(b"new", {})
    assert (await store.load(B)).rows == {0: b"row 0", 1: b"row 1"}


async def test_a_session_of_the_same_name_takes_nothing_that_was_meant_for_the_one_before(
    store: Store,
) -> None:
    for _ in range(2):
        late = await begun(store)
        await store.delete(A)
        with pytest.raises(GoneError):
            await store.put(A, late, 0, b"row")
        await begun(store)
        with pytest.raises(FencedError):
            await store.put(A, late, 0, b"row")
        assert (await store.load(A)).rows == {}


async def test_another_epoch_writes_nothing(store: Store) -> None:
    first = await begun(store)
    claim = await store.claim(A, anew=True)
    assert claim.epoch > claim.previous == first
    for wrong in (first, claim.epoch + 1):
        for asking in (
            store.put(A, wrong, 0, b"row"),
            store.take_back(A, wrong, 0),
            store.put_media(A, wrong, {"cat": b"cat"}),
        ):
            with pytest.raises(FencedError):
                await asking
    assert await store.load(A) == StoredSession(b"head", {})


async def test_a_row_is_kept_where_the_one_it_goes_on_from_is_and_nowhere_else(store: Store) -> None:
    epoch, other = [await begun(store, name) for name in (A, B)]
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
        epoch = await begun(store, name)
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


async def test_the_secret_is_the_first_one(store: Store) -> None:
    first = await store.secret(b"one\0")
    assert await store.secret(b"two") == first
    if not isinstance(store, RedisStore):  # whose server may have one of an earlier test
        assert first == b"one\0"


async def test_a_row_is_unreceived_until_a_client_has_it(store: Store) -> None:
    epoch, _ = [await begun(store, name, rows=4) for name in (A, B)]
    assert (await store.load(A)).unreceived == {0, 1, 2, 3}
    await store.received(A, [0, 2])
    await store.received(A, [2, 9])  # once more, and one that is not there
    await store.received(A, [])
    await store.take_back(A, epoch, 3)
    assert (await store.load(A)).unreceived == {1}
    assert (await store.load(B)).unreceived == {0, 1, 2, 3}
    await store.delete(A)
    await store.received(A, [1])
    assert await store.head(A) is None
    await store.create(A, b"new")
    assert (await store.load(A)).unreceived == frozenset()


async def test_a_file_keeps_its_sessions_its_secret_and_what_nobody_has_received(tmp_path: Path) -> None:
    first = SqliteStore.open(tmp_path / "s.db")
    secret, epoch = await first.secret(b"one"), await begun(first, rows=2)
    await first.received(A, [0])
    await first.aclose()
    second = SqliteStore.open(tmp_path / "s.db", durable=True)
    assert await second.load(A) == StoredSession(b"head", {0: b"row 0", 1: b"row 1"}, frozenset((1,)))
    assert await second.secret(b"two") == secret
    assert (await second.claim(A)).previous == epoch
    await second.aclose()


NAMES = [letter * 32 for letter in "abcdef"]


async def test_the_sessions_used_last_come_first_and_the_list_ends_with_so_many(some: Store) -> None:
    for turns, name in enumerate(NAMES):
        await some.create(name, b"mine" if turns % 2 else b"theirs")
        await begun(some, name, rows=turns)
        await anyio.sleep(0.005)
    await some.claim(NAMES[1])
    last = ["b", "f", "e", "d", "c", "a"]
    every = await some.newest(9, lambda _: True)
    assert [(one.name[0], one.turns) for one in every] == [(name, "abcdef".index(name)) for name in last]
    assert all(0 <= before.idle <= after.idle < 60 for before, after in pairwise(every))
    mine = await some.newest(2, lambda head: head == b"mine")
    assert [(one.name[0], one.head) for one in mine] == [("b", b"mine"), ("f", b"mine")]
    assert await some.newest(9, lambda _: False) == []
    await some.delete(NAMES[5])
    assert "f" not in [one.name[0] for one in await some.newest(9, lambda _: True)]


@pytest.fixture(params=[*KINDS, "fake"])
async def some(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Lend a store of each kind without sessions; `fakeredis` stands for a server that is not there."""
    made: Store = MemoryStore()
    if request.param == "sqlite":
        made = SqliteStore.open(tmp_path / "sessions.db")
    if request.param == "redis":
        made = RedisStore.to(request.getfixturevalue("redis_url"))
    if request.param == "fake":
        made = RedisStore(fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer()))
    yield made
    for name in NAMES:
        await made.delete(name)
    await made.aclose()


async def test_a_list_of_sessions_reads_no_rows(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "s.db")
    await begun(store, rows=1)
    await store.put(A, (await store.claim(A)).epoch, 1, bytes(9_000_000))
    read = list[str]()
    store.db.set_trace_callback(read.append)
    assert [one.turns for one in await store.newest(9, lambda _: True)] == [2]
    store.db.set_trace_callback(None)
    assert not [sql for sql in read if "data" in sql]
    await store.aclose()


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


async def test_a_symbolic_link_and_its_target_are_one_store(tmp_path: Path) -> None:
    """A file has one owner, and is private also where the link was there first."""
    target, link = tmp_path / "target.db", tmp_path / "links" / "link.db"
    link.parent.mkdir()
    link.symlink_to(target)
    for first, second in ((link, target), (target, link), (target, target)):
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


async def test_a_file_of_before_has_received_everything(tmp_path: Path) -> None:
    first = SqliteStore.open(tmp_path / "s.db")
    await begun(first, rows=1)
    await first.aclose()
    with closing(sqlite3.connect(tmp_path / "s.db")) as file, file:
        for table in ("unreceived", "secrets"):
            file.execute(f"DROP TABLE {table}")
    second = SqliteStore.open(tmp_path / "s.db")
    assert await second.load(A) == StoredSession(b"head", {0: b"row 0"})
    assert await second.secret(b"new") == b"new"
    await second.aclose()


async def test_a_delete_that_fails_halfway_deletes_nothing(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "s.db")
    await begun(store, rows=1)
    with closing(sqlite3.connect(tmp_path / "s.db")) as file, file:
        file.execute("CREATE TRIGGER t BEFORE DELETE ON sessions BEGIN SELECT RAISE(ABORT, 'no'); END")
    for asking in (store.delete(A), store.sweep(-60)):
        with pytest.raises(StoreError):
            await asking
    assert (await store.load(A)).rows == {0: b"row 0"}
    await store.aclose()


async def test_idle_sessions_are_swept_unless_they_are_used(tmp_path: Path) -> None:
    now = [0.0]
    file = SqliteStore.open(tmp_path / "s.db")
    file.clock = lambda: now[0]
    for store in (file, MemoryStore(clock=lambda: now[0])):
        for name, now[0] in ((A, 0.0), (B, 50.0)):
            await begun(store, name, rows=1)
        for at, used, names in (
            (60.0, (), [A, B]),  # idle for just the time
            (61.0, (), [B]),
            (111.0, (B, "gone"), [B]),
            (171.0, (), [B]),
            (172.0, (), []),
        ):
            now[0] = at
            swept, before = await store.sweep(60, used=used), await store.count()
            assert [name for name in (A, B) if await store.head(name)] == names
            assert (before, swept) == (len(names), int(at in (61.0, 172.0)))
        assert await store.create(A, b"head")
        assert await store.load(A) == StoredSession(b"head", {})
    await file.aclose()


async def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*misspelt; make it, or name another file"):
        SqliteStore.open(tmp_path / "misspelt" / "s.db")
    assert os.listdir(tmp_path) == []  # noqa: PTH208  # a look of its own, which waits for nobody


@pytest.mark.parametrize(
    ("address", "said"),
    [
        *((one, "--store") for one in ("", "sqlite:", "mysql://x", "redis")),
        *((one, "--store: .*redis://HOST:PORT") for one in ("Redis://:secret@127.0.0.1:6379", ":secret@h")),
        *(
            (one, "--store: .*redis://HOST:PORT")
            for one in ("redis+ssl://:secret@h", "h:6379?password=secret")
        ),
        *(
            (one, "^--store: .*; give redis://HOST:PORT/NUMBER$")
            for one in ("redis://127.0.0.1:port", "redis://127.0.0.1/0?db=x", "redis://:secret/x@127.0.0.1")
        ),
        ("redis://h:1/0?password=secret&db=x", "--store: .*redis://HOST:PORT"),
    ],
)
async def test_an_address_that_is_wrong_is_said_without_its_password(address: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as wrong:
        open_store(address, idle_seconds=1, durable=False)
    assert "secret" not in str(wrong.value)


@pytest.fixture(params=["fake", *(["real"] if wanted() else [])])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    """Two gateways' stores on one server; `fakeredis` runs the scripts that a server would run."""
    if request.param == "fake":
        server = fakeredis.FakeServer()
        clients: list[Any] = [fakeredis.FakeAsyncRedis(server=server) for _ in range(2)]
        one, other = (RedisStore(client, lease_seconds=0.3) for client in clients)
    else:
        url = request.getfixturevalue("redis_url")
        one, other = (RedisStore.to(url, lease_seconds=0.3) for _ in range(2))
    yield one, other
    await one.delete(A)
    await one.aclose()
    await other.aclose()


async def test_keys_on_a_server_are_those_of_other_versions(both: tuple[RedisStore, RedisStore]) -> None:
    one, _ = both
    await begun(one, rows=1)
    await one.secret(b"secret")
    parts = [f"tito:session:{{{A}}}:{part}".encode() for part in ("head", "lease", "rows")]
    assert {b"tito:secret", *parts} <= set(await one.client.keys())
    assert set(await one.client.hkeys(parts[0])) == {b"data", b"epoch", b"owner", b"unreceived:0"}


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


async def test_media_that_outlived_their_session_do_not_come_back_with_its_name(
    both: tuple[RedisStore, RedisStore],
) -> None:
    """A server ends keys by itself, each for itself."""
    store, _ = both
    await store.put_media(A, await begun(store), {"cat": b"cat"})
    assert (await store.load(A)).media == {"cat": 3}
    await store.client.delete(f"tito:session:{{{A}}}:head")
    await store.create(A, b"head")
    assert (await store.load(A)).media == {}


@pytest.mark.parametrize("use", ["claim", "put", "put_media", "take_back"])
async def test_each_use_makes_all_of_a_session_live_longer(
    use: str, both: tuple[RedisStore, RedisStore]
) -> None:
    """A head that outlives its rows would be a session without turns."""
    store, _ = both
    store.life_seconds = 100
    epoch = await begun(store, rows=2)
    await store.put_media(A, epoch, {"cat": b"cat"})
    store.life_seconds = 1000
    uses: dict[str, tuple[Any, ...]] = {
        "claim": (),
        "put": (epoch, 2, b"row"),
        "put_media": (epoch, {"dog": b"dog"}),
        "take_back": (epoch, 1),
    }
    await getattr(store, use)(A, *uses[use])
    ends = [await store.client.pttl(f"tito:session:{{{A}}}:{part}") for part in ("head", "rows", "media")]
    assert min(ends) > 900_000


async def test_gateways_of_one_server_have_one_secret(both: tuple[RedisStore, RedisStore]) -> None:
    one, other = both
    assert await one.secret(b"one") == await other.secret(b"two")
    await one.client.delete("tito:secret")  # the server lost its data: a gateway gives it back
    assert await other.secret(b"kept") == await one.secret(b"one") == b"kept"


async def test_one_owner_at_a_time_and_a_late_one_is_fenced(both: tuple[RedisStore, RedisStore]) -> None:
    one, other = both
    first = await begun(one, rows=1)
    with pytest.raises(BusyError, match="another gateway is in the middle of a turn of this session"):
        await other.claim(A)
    await anyio.sleep(0.4)  # the first one's lease runs out: it counts as dead
    second = await other.claim(A)
    assert second.previous == first
    with pytest.raises(FencedError):
        await one.put(A, first, 1, b"late")
    await other.put(A, second.epoch, 1, b"theirs")
    assert (await one.load(A)).rows == {0: b"row 0", 1: b"theirs"}
    assert await other.delete(A)
    with pytest.raises(GoneError):
        await one.claim(A)


async def test_a_released_session_moves_at_once_and_one_that_nobody_took_is_the_same(
    both: tuple[RedisStore, RedisStore],
) -> None:
    one, other = both
    first = await begun(one)
    await one.release(A, first)
    again = await one.claim(A)
    assert again.epoch == first == again.previous
    await one.release(A, first)
    theirs = await other.claim(A)
    await one.release(A, first)  # a late release takes nothing from the new owner
    with pytest.raises(BusyError):
        await one.claim(A)
    await other.release(A, theirs.epoch)
    assert (await one.claim(A)).previous == theirs.epoch != first


@pytest.mark.skipif(not wanted(), reason="there is no redis-server: TITO_REDIS=1 demands one")
async def test_nothing_is_written_twice_where_the_connection_breaks_after_it(redis_url: str) -> None:
    """The server has the row, and its answer gets lost: whoever asked is told that nobody knows."""
    store = RedisStore.to(redis_url)
    async with cutting(redis_url) as (url, cuts):
        epoch = await begun(store)
        broken = RedisStore.to(url)
        cuts.append("the next one")
        with pytest.raises(StoreError, match="ConnectionError"):
            await broken.put(A, epoch, 0, b"row")
        assert (await store.load(A)).rows == {0: b"row"}
        await broken.aclose()
    await store.delete(A)
    await store.aclose()


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
            epoch = await begun(store, rows=1)
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
    epoch = await begun(store)
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(store.put, A, epoch, 0, b"row 0")
            await anyio.wait_all_tasks_blocked()
            assert group.cancel_scope.cancel_called is False
            other.execute("ROLLBACK")
    assert (await store.load(A)).rows == {0: b"row 0"}
    await store.aclose()


@pytest.mark.parametrize("media", [False, True])
async def test_the_log_is_copied_into_the_file_as_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, media: bool
) -> None:
    monkeypatch.setattr("tito_io.serve.sqlite.UNSAVED", 10_000)
    store = SqliteStore.open(tmp_path / "s.db")
    epoch = await begun(store)
    before = (tmp_path / "s.db").stat().st_size
    sizes = []
    for place in range(60):
        if media:
            await store.put_media(A, epoch, {f"{place}-{one}": bytes(2_000) for one in range(2)})
        else:
            await store.put(A, epoch, place, bytes(4_000))
        sizes.append((tmp_path / "s.db-wal").stat().st_size)
    assert (tmp_path / "s.db").stat().st_size - before > 55 * 4_000
    assert media or sizes[59] == sizes[19]  # it is written again from its beginning
    await store.aclose()


async def test_a_row_that_is_written_without_a_thread_copies_no_log(tmp_path: Path) -> None:
    """To copy it waits for the disk, and all other requests would wait, too."""
    store = SqliteStore.open(tmp_path / "s.db")
    epoch = await begun(store)
    for place in range(UNSAVED // 100_000):
        await store.put(A, epoch, place, bytes(100_000))
    assert (tmp_path / "s.db-wal").stat().st_size > UNSAVED - 100_000
    assert (tmp_path / "s.db").stat().st_size < 100_000
    await store.sweep(60.0, [A])
    assert (tmp_path / "s.db").stat().st_size > UNSAVED - 100_000
    await store.aclose()


@pytest.mark.parametrize(
    ("life", "lease", "swept", "milliseconds"),
    [(5.0, 7.5, None, 7500), (60.0, 10.0, None, 60_000), (0.1, 10.0, 3600, 3_600_000), (0.0, 0.0, None, 1)],
)
async def test_a_session_on_a_server_lives_as_long_as_it_is_owned_at_least(
    life: float, lease: float, swept: float | None, milliseconds: int
) -> None:
    """The server takes milliseconds, and no fewer than one; a gateway says how long when it sweeps."""
    store = RedisStore(
        fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer()), life_seconds=life, lease_seconds=lease
    )
    if swept is not None:
        await store.sweep(swept)
    await store.create(A, b"head")
    left = await store.client.pttl(f"tito:session:{{{A}}}:head")
    assert milliseconds - 500 <= left <= milliseconds
    await store.aclose()


# What a time and an epoch are.


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


async def begun(store: Store, name: str = A, rows: int = 0) -> int:
    """Open a session with so many rows; return its owner's epoch."""
    await store.create(name, b"head")
    epoch = (await store.claim(name)).epoch
    for place in range(rows):
        await store.put(name, epoch, place, b"row %d" % place)
    return epoch
