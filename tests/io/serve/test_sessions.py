"""Sessions are loaded when they are used, let go when they are idle, and move between gateways."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tests.io.serve.gateway import (
    HELLO,
    Scripted,
    chat,
    client,
    embedded_gateway,
    opened,
    scripted_gateway,
    user,
)
from tests.io.serve.redis_server import redis_server, wanted
from tito_io.engines.miles import Miles
from tito_io.serve.app import app
from tito_io.serve.gateway import Gateway, GatewayOptions, build_gateway
from tito_io.serve.metrics import Metrics
from tito_io.serve.redis import LEASE_SECONDS, RedisStore
from tito_io.serve.refusals import GatewayLimits, RequestRefused
from tito_io.serve.session import SessionHead
from tito_io.serve.sessions import PATIENCE_SECONDS, RENEW_SECONDS, Sessions
from tito_io.serve.sqlite import SqliteStore
from tito_io.serve.store import BusyError, Claim, FencedError, StoredSession, StoreError
from tito_io.serve.stores import MemoryStore, open_store

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
needs_redis = pytest.mark.skipif(not wanted(), reason="there is no redis-server: TITO_REDIS=1 demands one")


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


async def test_an_idle_session_leaves_memory_and_comes_back(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "s.db")
    engine = Scripted()
    gateway = scripted_gateway(engine, store, GatewayOptions(limits=GatewayLimits(loaded_seconds=0.0)))
    async with client(gateway) as http:
        name = await opened(http)
        said = (await chat(http, name, HELLO))["choices"][0]["message"]
        await anyio.sleep(0.01)
        await gateway.sessions._sweep()
        assert gateway.sessions._loaded == {}
        await chat(http, name, [*HELLO, said, user()])
        assert engine.asked[-1][0] == "ids"
    await store.aclose()


async def test_what_is_named_goes_on_where_there_is_no_room_for_more() -> None:
    gateway = scripted_gateway(Scripted(), choices=GatewayOptions(limits=GatewayLimits(sessions=1)))
    headers = {"Authorization": "Bearer mine"}
    async with client(gateway, headers=headers) as http:
        for _ in range(2):
            answer = await http.post("/v1/chat/completions", json={"messages": HELLO})
            assert answer.status_code == 200
            gateway.sessions._loaded.clear()
        other = {"Authorization": "Bearer another"}
        full = await http.post("/v1/chat/completions", json={"messages": HELLO}, headers=other)
    assert full.status_code == 429


async def test_a_gateway_s_files_are_nobody_else_s_to_read(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "s.db")
    await store.create("a", b"{}")
    files = sorted(tmp_path.iterdir())  # noqa: ASYNC240  # a few names
    assert {"s.db", "s.db.lock", "s.db-wal"} <= {file.name for file in files}
    assert [file.name for file in files if file.stat().st_mode & 0o077] == []
    await store.aclose()


async def test_an_engine_that_keeps_ids_itself_is_told_by_messages_and_its_ids_are_shared() -> None:
    """Another gateway stands in for a session server."""
    inner = scripted_gateway(Scripted())
    transport = httpx2.ASGITransport(app(inner), raise_app_exceptions=False)
    gateway = build_gateway(Miles("http://inner", transport=transport), MemoryStore(), model="m")
    async with client(gateway) as http:
        name, messages = await opened(http), list(HELLO)
        for _ in range(4):
            said = (await chat(http, name, messages))["choices"][0]["message"]
            messages = [*messages, said, user()]
        async with gateway.sessions.using(name) as session:
            commits = list(session.commits.values())
            assert session.ids == len(commits[-1].step.ids)
    assert [one.origin.route for one in commits] == ["MITO", "KEPT", "KEPT", "KEPT"]
    await gateway.turns.engine.aclose()


async def test_a_session_in_use_is_not_let_go() -> None:
    gateway = scripted_gateway(Scripted(), choices=GatewayOptions(limits=GatewayLimits(loaded_seconds=0.0)))
    async with client(gateway) as http:
        name = await opened(http)
        async with gateway.sessions.using(name) as session:
            await anyio.sleep(0.01)
            await gateway.sessions._sweep()
            assert gateway.sessions._loaded[name] is session


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_session_in_use_stays_in_the_store_however_long(kind: str, tmp_path: Path) -> None:
    now = [0.0]
    store = MemoryStore() if kind == "memory" else SqliteStore.open(tmp_path / "s.db")
    store.clock = lambda: now[0]
    engine = Scripted(held=anyio.Event())
    gateway = scripted_gateway(engine, store, GatewayOptions(limits=GatewayLimits(idle_seconds=60)))
    async with client(gateway) as http:
        name, idle = await opened(http), await opened(http)
        async with anyio.create_task_group() as group:
            group.start_soon(chat, http, name, HELLO)
            while not engine.running:  # noqa: ASYNC110  # an engine tells nobody
                await anyio.sleep(0.001)
            for now[0] in (61.0, 122.0, 183.0):
                await gateway.sessions._sweep()
            assert engine.held is not None
            engine.held.set()
        assert len((await http.get(f"/sessions/{name}")).json()["records"]) == 1
        assert (await http.get(f"/sessions/{idle}")).status_code == 404
    await store.aclose()


async def test_looking_is_use_too_and_its_end_is_the_last() -> None:
    now = [0.0]
    gateway = scripted_gateway(
        Scripted(), MemoryStore(clock=lambda: now[0]), GatewayOptions(limits=GatewayLimits(idle_seconds=60))
    )
    async with client(gateway) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
        await gateway.sessions._sweep()
        now[0] = 61
        assert (await http.get(f"/sessions/{name}")).status_code == 200
        await gateway.sessions._sweep()
        assert await gateway.sessions.exists(name)
        now[0] = 122
        await gateway.sessions._sweep()
        assert not await gateway.sessions.exists(name)


async def test_many_requests_at_once_load_a_session_once() -> None:
    class Counting(MemoryStore):
        loads = 0

        async def load(self, name: str) -> Any:
            Counting.loads += 1
            await anyio.sleep(0.01)
            return await super().load(name)

    gateway = scripted_gateway(Scripted(), Counting())
    async with client(gateway) as http:
        name = await opened(http)
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(chat, http, name, HELLO)
        async with gateway.sessions.using(name) as session:
            assert len(session.commits) == 10
    assert Counting.loads == 1


async def test_a_restarted_gateway_goes_on(tmp_path: Path) -> None:
    messages: list[Any] = list(HELLO)
    name = ""
    last: list[int] = []
    for _ in range(3):
        store = SqliteStore.open(tmp_path / "s.db")
        gateway = embedded_gateway(store)
        async with client(gateway) as http:
            name = name or await opened(http)
            for _ in range(3):
                answer = await chat(http, name, messages, return_token_ids=True)
                assert answer["prompt_token_ids"][: len(last)] == last
                last = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
                messages = [*messages, answer["choices"][0]["message"], user()]
        await store.aclose()


# A fleet over one Redis.


@asynccontextmanager
async def fleet(url: str, **options: float) -> AsyncIterator[list[tuple[Gateway, httpx2.AsyncClient]]]:
    """Run two gateways over one store, each with the embedded engine."""
    gateways = [embedded_gateway(RedisStore.to(url, **options)) for _ in range(2)]
    async with client(gateways[0]) as one, client(gateways[1]) as other:
        yield list(zip(gateways, (one, other), strict=True))
    for gateway in gateways:
        await gateway.sessions.store.aclose()


async def test_each_request_is_one_use_of_its_session() -> None:
    """A client that knows the number of uses deletes a session only if nobody has used it since."""
    async with client(scripted_gateway(Scripted())) as http:
        path, generation = f"/sessions/{await opened(http)}", "x-miles-session-generation"
        uses = [(await http.get(f"{path}/samples")).headers[generation] for _ in range(3)]
        assert uses == ["1", "2", "3"]
        assert (await http.delete(path, headers={generation: "2"})).status_code == 412
        assert (await http.delete(path, headers={generation: "3"})).status_code == 204


@needs_redis
async def test_a_session_moves_between_gateways_and_keeps_every_id(redis_url: str) -> None:
    async with fleet(redis_url) as both:
        name, messages = await opened(both[0][1]), list[Any](HELLO)
        last: list[int] = []
        for turn in range(12):
            answer = await chat(both[turn % 2][1], name, messages, return_token_ids=True)
            assert answer["prompt_token_ids"][: len(last)] == last
            last = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
            messages = [*messages, answer["choices"][0]["message"], user()]
        for gateway, _ in both:
            async with gateway.sessions.using(name) as session:
                assert len(session.commits) == 12
                assert len(session.forest.leaves) == 1


@needs_redis
async def test_two_gateways_asked_at_once_take_turns_and_lose_none(redis_url: str) -> None:
    async with fleet(redis_url) as both:
        name = await opened(both[0][1])
        async with anyio.create_task_group() as group:
            for _, http in both * 4:
                group.start_soon(chat, http, name, HELLO)
        async with both[0][0].sessions.using(name) as session:
            assert len(session.commits) == 8


@needs_redis
async def test_a_dead_owner_is_replaced_and_its_late_turn_is_refused(redis_url: str) -> None:
    """The first gateway stalls in the middle of a turn for longer than its lease, then goes on."""
    engine = Scripted(held=anyio.Event())
    stalled = scripted_gateway(engine, RedisStore.to(redis_url, lease_seconds=0.2))
    alive = scripted_gateway(Scripted(), RedisStore.to(redis_url, lease_seconds=0.2))
    async with client(stalled) as one, client(alive) as other:
        name = await opened(one)
        found: list[httpx2.Response] = []

        async def late() -> None:
            found.append(await one.post(f"/sessions/{name}/v1/chat/completions", json={"messages": HELLO}))

        async with anyio.create_task_group() as group:
            group.start_soon(late)
            while not engine.running:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.005)
            said = (await chat(other, name, HELLO))["choices"][0]["message"]
            await chat(other, name, [*HELLO, said, user()])
            assert engine.held is not None
            engine.held.set()
        assert found[0].status_code == 503
        again = await chat(one, name, [*HELLO, said, user("again")])
        assert engine.asked[-1][0] == "ids"  # it has read what the other one wrote
        shown = (await other.get(f"/sessions/{name}")).json()
    nodes = shown["metadata"]["tree"]["nodes"]
    assert len(nodes) == 3
    assert nodes[-1]["response_id"] == again["id"]
    for gateway in (stalled, alive):
        await gateway.sessions.store.aclose()


@needs_redis
async def test_who_lost_a_session_under_a_turn_reads_it_again_for_the_next(redis_url: str) -> None:
    engine = Scripted(held=anyio.Event())
    stalled = scripted_gateway(engine, RedisStore.to(redis_url, lease_seconds=0.2))
    alive = scripted_gateway(Scripted(), RedisStore.to(redis_url, lease_seconds=0.2))
    async with client(stalled) as one, client(alive) as other, anyio.create_task_group() as group:
        name = await opened(one)
        path = f"/sessions/{name}/v1/chat/completions"

        async def late() -> None:
            await one.post(path, json={"messages": HELLO})

        group.start_soon(late)
        while not engine.running:  # noqa: ASYNC110  # nobody tells
            await anyio.sleep(0.005)
        await chat(other, name, HELLO)
        await stalled.sessions._renew()
        assert name not in stalled.sessions._loaded
        assert len((await one.get(f"/sessions/{name}")).json()["records"]) == 1
        assert engine.held is not None
        engine.held.set()
    for gateway in (stalled, alive):
        await gateway.sessions.store.aclose()


@needs_redis
async def test_a_long_turn_keeps_its_lease(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tito_io.serve.sessions.RENEW_SECONDS", 0.1)
    engine = Scripted(held=anyio.Event())
    slow = scripted_gateway(engine, RedisStore.to(redis_url, lease_seconds=0.4))
    other = scripted_gateway(Scripted(), RedisStore.to(redis_url, lease_seconds=0.4))
    other.sessions.patience = 0.2
    async with client(slow) as one, client(other) as two, anyio.create_task_group() as group:
        name = await opened(one)
        group.start_soon(slow.sessions.maintain)
        group.start_soon(chat, one, name, HELLO)
        await anyio.sleep(1.0)
        busy = await two.post(f"/sessions/{name}/v1/chat/completions", json={"messages": HELLO})
        assert busy.status_code == 503
        assert busy.json()["error"]["code"] == "SessionBusyError"
        assert "x-should-retry" not in busy.headers  # later it may be free
        assert engine.held is not None
        engine.held.set()
        while not (await one.get(f"/sessions/{name}")).json()["records"]:  # noqa: ASYNC110  # nobody tells
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    for gateway in (slow, other):
        await gateway.sessions.store.aclose()


async def keyed(http: httpx2.AsyncClient) -> str:
    """Take a turn in the session of an API key; return its id."""
    headers = {"authorization": "Bearer dummy"}
    answer = await http.post("/v1/chat/completions", json={"messages": HELLO}, headers=headers)
    return str(answer.headers["x-tito-session"])


@needs_redis
async def test_a_key_names_the_same_session_at_all_gateways_of_a_server(redis_url: str) -> None:
    gateways = [scripted_gateway(Scripted(), RedisStore.to(redis_url)) for _ in range(2)]
    async with client(gateways[0]) as one, client(gateways[1]) as other:
        assert await keyed(one) == await keyed(other)
        shown = await other.get("/session", headers={"authorization": "Bearer dummy"})
        assert len(shown.json()["metadata"]["tree"]["nodes"]) == 2
        assert (await one.delete("/session", headers={"authorization": "Bearer dummy"})).status_code == 204
    for gateway in gateways:
        await gateway.sessions.store.aclose()


async def test_a_key_names_the_same_session_after_a_restart_and_another_one_in_another_file(
    tmp_path: Path,
) -> None:
    found = []
    for name in ("a.db", "a.db", "b.db"):
        store = SqliteStore.open(tmp_path / name)
        async with client(scripted_gateway(Scripted(), store)) as http:
            found.append(await keyed(http))
        await store.aclose()
    assert found[0] == found[1] != found[2]


@needs_redis
async def test_a_store_that_is_away_is_an_outage_and_no_refusal(redis_url: str) -> None:
    gateway = scripted_gateway(Scripted(), RedisStore.to(redis_url))
    async with client(gateway) as http:
        name = await opened(http)
        store: Any = gateway.sessions.store
        await store.aclose()
        store.client = RedisStore.to("redis://127.0.0.1:1/0").client
        answer = await http.post(f"/sessions/{name}/v1/chat/completions", json={"messages": HELLO})
        assert answer.status_code == 503
        assert (await http.post("/sessions")).status_code == 503
    await gateway.sessions.store.aclose()


# What a store may do to a session.


class Forgetful(MemoryStore):
    """A store whose acknowledgements may get lost on the way, after the row was written."""

    lost = 0

    async def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        await super().put(name, epoch, place, row, after=after)
        if self.lost:
            self.lost -= 1
            raise StoreError("the store failed: ConnectionError")


@pytest.mark.parametrize("shared", [False, True])
async def test_a_session_goes_on_after_a_write_of_which_nobody_knows(shared: bool) -> None:
    """The row is there, nobody was told: whoever asks again gets that turn, and the next one its sibling."""
    store = Forgetful()
    store.shared = shared
    engine = Scripted()
    async with client(scripted_gateway(engine, store)) as http:
        name = await opened(http)
        said = (await chat(http, name, HELLO))["choices"][0]["message"]
        messages = [*HELLO, said, user()]
        store.lost = 1
        failed = await http.post(f"/sessions/{name}/v1/chat/completions", json={"messages": messages})
        assert failed.status_code == 503
        for asked in (2, 3):
            await chat(http, name, messages)
            assert [kind for kind, *_ in engine.asked[1:]] == ["ids"] * (asked - 1)
        shown = (await http.get(f"/sessions/{name}")).json()
    nodes = shown["metadata"]["tree"]["nodes"]
    assert [node["parent"] for node in nodes] == [None, *[nodes[0]["id"]] * 2]


@pytest.mark.parametrize("kind", ["memory", "sqlite", *(["redis"] if wanted() else [])])
async def test_a_session_that_is_read_again_takes_no_turn_of_those_who_still_use_the_old_one(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Both would have the epoch of the same owner, and neither would know what the other writes."""
    address = {"memory": "memory", "sqlite": f"sqlite:{tmp_path / 's.db'}"}
    url = address[kind] if kind in address else request.getfixturevalue("redis_url")
    store = open_store(url, idle_seconds=60, durable=False)
    gateway = scripted_gateway(Scripted(), store)
    async with client(gateway) as http:
        name = await opened(http)
        said = (await chat(http, name, HELLO))["choices"][0]["message"]
        async with gateway.sessions.using(name) as old:
            made = attrs.evolve(old.commits[next(iter(old.commits))], parent=None)
            made = attrs.evolve(made, call=attrs.evolve(made.call, name="late"))
            old.must_reload = True  # a write of another turn failed
            async with gateway.sessions.using(name) as new:
                assert new is not old
                with pytest.raises(FencedError):
                    await old.commit([made])
                assert len(await new.commit([made])) == 1
            with pytest.raises(FencedError):
                await old.commit([made])
        await chat(http, name, [*HELLO, said, user()])
        shown = (await http.get(f"/sessions/{name}")).json()
    assert [node["id"] for node in shown["metadata"]["tree"]["nodes"]][1] == "late"
    assert len(shown["metadata"]["tree"]["nodes"]) == 3
    await store.aclose()


@needs_redis
async def test_a_session_goes_on_after_its_store_has_lost_turns(redis_url: str) -> None:
    """A server that does not wait for its disk forgets the latest turn when it is killed."""
    gateway = embedded_gateway(RedisStore.to(redis_url))
    store: Any = gateway.sessions.store
    async with client(gateway) as http:
        name, messages = await opened(http), list[Any](HELLO)
        for _ in range(3):
            said = (await chat(http, name, messages))["choices"][0]["message"]
            messages = [*messages, said, user()]
        await store.client.hdel(f"tito:session:{{{name}}}:rows", 2)
        await chat(http, name, messages)
        shown = (await http.get(f"/sessions/{name}")).json()
        assert len(shown["metadata"]["tree"]["nodes"]) == 3
        await store.client.hdel(f"tito:session:{{{name}}}:rows", 0)
        lost = await http.post(f"/sessions/{name}/v1/chat/completions", json={"messages": messages})
        assert lost.status_code == 503
        assert "the store has lost a turn" in lost.json()["error"]["message"]
    await store.aclose()


@pytest.mark.parametrize("shared", [False, True])
async def test_a_turn_whose_parent_the_store_lost_under_it_is_refused_and_the_session_goes_on(
    shared: bool,
) -> None:
    """It would be there and could never be read again, and no other turn of the session either."""
    store, engine = MemoryStore(), Scripted()
    store.shared = shared
    async with client(scripted_gateway(engine, store)) as http:
        name = await opened(http)
        said = (await chat(http, name, HELLO))["choices"][0]["message"]
        messages, path = [*HELLO, said, user()], f"/sessions/{name}/v1/chat/completions"
        engine.held, found = anyio.Event(), list[httpx2.Response]()

        async def asked() -> None:
            found.append(await http.post(path, json={"messages": messages}))

        async with anyio.create_task_group() as group:
            group.start_soon(asked)
            while not engine.running:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.001)
            store._db.execute("DELETE FROM turns")
            engine.held.set()
        assert (found[0].status_code, found[0].json()["error"]["code"]) == (503, "LostError")
        assert (await store.load(name)).rows == {}
        await chat(http, name, messages)
        assert engine.asked[-1][0] == "messages"
        assert len((await http.get(f"/sessions/{name}")).json()["records"]) == 1


# Sessions that are not there.


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("POST", "/v1/messages/count_tokens"),
        ("GET", ""),
        ("GET", "/view"),
        ("GET", "/samples"),
        ("POST", "/samples"),
        ("DELETE", ""),
        ("GET", "/version"),
    ],
)
async def test_every_route_of_a_session_that_is_not_there_says_so(method: str, path: str) -> None:
    async with client(scripted_gateway(Scripted())) as http:
        body = {"messages": HELLO, "model": "m"}
        answer = await http.request(
            method, f"/sessions/nope{path}", json=body if path.endswith("tokens") else {}
        )
        assert answer.status_code == 404
        assert "session not found" in answer.text
        name = await opened(http)
        if path != "/version":  # which is the engine's, and it has none
            there = await http.request(
                method, f"/sessions/{name}{path}", json=body if "tokens" in path else {}
            )
            assert there.status_code in (200, 204)


async def test_a_session_that_another_gateway_deletes_takes_no_more_requests_while_it_is_used() -> None:
    store = MemoryStore()
    store.shared = True
    here, there = (Sessions(store, GatewayLimits(), Metrics()) for _ in range(2))
    name = await here.open(SessionHead(created=0.0))
    async with here.using(name):
        assert await there.delete(name)
        with pytest.raises(RequestRefused, match="session not found"):
            async with here.using(name):
                pass
        assert here._loaded == {}  # not for the next ones, either


async def test_a_session_that_another_gateway_deleted_since_leaves_memory() -> None:
    store = MemoryStore()
    store.shared = True
    here, there = (Sessions(store, GatewayLimits(), Metrics()) for _ in range(2))
    name = await here.open(SessionHead(created=0.0))
    async with here.using(name):
        pass
    assert list(here._loaded) == [name]
    assert await there.delete(name)
    with pytest.raises(RequestRefused, match="session not found"):
        async with here.using(name):
            pass
    assert here._loaded == {}


async def test_a_session_that_is_deleted_while_it_is_loaded_does_not_stay_in_memory() -> None:
    loading, go_on = anyio.Event(), anyio.Event()

    class Slow(MemoryStore):
        async def load(self, name: str) -> StoredSession:
            found = await super().load(name)
            loading.set()
            await go_on.wait()
            return found

    sessions = Sessions(Slow(), GatewayLimits(), Metrics())
    name = await sessions.open(SessionHead(created=0.0))

    async def use() -> None:
        async with sessions.using(name):
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(use)
        await loading.wait()
        group.start_soon(sessions.delete, name)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert sessions._loaded == {}


async def test_a_session_that_is_deleted_before_it_is_loaded_is_not_found() -> None:
    class Vanishing(MemoryStore):
        async def load(self, name: str) -> StoredSession:
            await self.delete(name)
            return await super().load(name)

    sessions = Sessions(Vanishing(), GatewayLimits(), Metrics())
    name = await sessions.open(SessionHead(created=0.0))
    with pytest.raises(RequestRefused, match=f"session not found: session_id={name}"):
        async with sessions.using(name):
            pass
    assert sessions._loaded == {}


async def test_a_session_in_memory_is_not_claimed_again_for_each_request() -> None:
    """A request that only reads writes nothing."""

    class Counting(MemoryStore):
        claims = 0

        async def claim(self, name: str, *, anew: bool = False) -> Claim:
            Counting.claims += 1
            return await super().claim(name, anew=anew)

    async with client(scripted_gateway(Scripted(), Counting())) as http:
        name = await opened(http)
        for _ in range(3):
            await http.get(f"/sessions/{name}")
    assert Counting.claims == 1


async def test_idle_sessions_are_looked_for_less_often_than_leases_are_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counting(MemoryStore):
        sweeps = 0

        async def sweep(self, idle_seconds: float, used: Collection[str] = ()) -> int:
            Counting.sweeps += 1
            return await super().sweep(idle_seconds, used)

    monkeypatch.setattr("tito_io.serve.sessions.RENEW_SECONDS", 0.001)
    gateway = scripted_gateway(Scripted(), Counting())
    with anyio.move_on_after(0.1):
        await gateway.sessions.maintain()
    assert Counting.sweeps == 1
    monkeypatch.setattr("tito_io.serve.sessions.SWEEP_SECONDS", 0.01)
    with anyio.move_on_after(0.2):
        await gateway.sessions.maintain()
    assert Counting.sweeps > 2


@pytest.mark.parametrize("known", [True, False])
async def test_a_store_that_lost_its_secret_gets_it_back(known: bool) -> None:
    """A gateway that needed none yet has none to give."""
    store = MemoryStore()
    sessions = Sessions(store, GatewayLimits(), Metrics())
    secret = await sessions.secret() if known else b"another gateway's"
    store._db.execute("DELETE FROM secrets")
    with anyio.move_on_after(0.02):
        await sessions.maintain()
    assert await store.secret(b"another gateway's") == secret
    assert await sessions.secret() == secret


async def test_a_request_waits_for_another_gateway_and_not_for_much_longer() -> None:
    class Busy(MemoryStore):
        tries = 0

        async def claim(self, name: str, *, anew: bool = False) -> Claim:
            Busy.tries += 1
            if Busy.tries < 4:
                raise BusyError("another gateway is in the middle of a turn of this session")
            return await super().claim(name, anew=anew)

    async with client(scripted_gateway(Scripted(), Busy())) as http:
        name = await opened(http)
        with anyio.fail_after(0.9):
            assert (await http.get(f"/sessions/{name}")).status_code == 200
    assert Busy.tries == 4


async def test_a_lease_is_renewed_in_time_and_waited_for_to_its_end() -> None:
    """Two renewals may fail before it ends, and who waits outlasts a gateway that is dead."""
    assert 3 * RENEW_SECONDS < LEASE_SECONDS < PATIENCE_SECONDS


async def test_a_turn_without_images_reads_and_writes_none() -> None:
    class NoMedia(MemoryStore):
        async def media(self, name: str, digests: Collection[str]) -> dict[str, bytes]:
            raise AssertionError(f"{len(digests)} media of {name}")

        async def put_media(self, name: str, epoch: int, media: Mapping[str, bytes]) -> None:
            raise AssertionError(f"{len(media)} media of {name} in {epoch}")

    async with client(scripted_gateway(Scripted(), NoMedia())) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
        assert (await http.get(f"/sessions/{name}/view")).status_code == 200


async def test_a_lease_ends_with_the_last_request_that_needs_it() -> None:
    class Counting(MemoryStore):
        released = 0

        async def release(self, name: str, epoch: int) -> None:
            Counting.released += 1
            await super().release(name, epoch)

    store = Counting()
    store.shared = True
    sessions = Sessions(store, GatewayLimits(), Metrics())
    name = await sessions.open(SessionHead(created=0.0))
    async with sessions.using(name):
        async with sessions.using(name):
            pass
        assert Counting.released == 0
    assert Counting.released == 1


async def test_a_lease_that_cannot_be_renewed_keeps_no_other_from_it() -> None:
    class Failing(MemoryStore):
        fails = ""

        async def claim(self, name: str, *, anew: bool = False) -> Claim:
            if name == Failing.fails:
                raise StoreError("the store failed")
            return await super().claim(name, anew=anew)

    store = Failing()
    store.shared = True
    gateway = scripted_gateway(Scripted(), store)
    async with client(gateway) as http:
        names = [await opened(http) for _ in range(2)]
        async with gateway.sessions.using(names[0]), gateway.sessions.using(names[1]):
            Failing.fails = names[0]
            await gateway.sessions._renew()  # each claim of this store is another owner's
            assert list(gateway.sessions._loaded) == [names[0]]
