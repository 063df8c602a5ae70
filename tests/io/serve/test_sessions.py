"""Sessions are loaded when they are used, let go when they are idle, and move between gateways."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tests.io.serve.gateway import (
    CHAT,
    HELLO,
    Scripted,
    Talk,
    Watched,
    client,
    embedded_gateway,
    failing,
    limited,
    opened,
    scripted_gateway,
    talking,
    user,
)
from tests.io.serve.redis_server import redis_server, wanted
from tito_io.engines.miles import Miles
from tito_io.serve.app import app
from tito_io.serve.gateway import Gateway, build_gateway
from tito_io.serve.metrics import Metrics
from tito_io.serve.redis import LEASE_SECONDS, RedisStore
from tito_io.serve.refusals import GatewayLimits, RequestRefused
from tito_io.serve.session import SessionHead
from tito_io.serve.sessions import PATIENCE_SECONDS, RENEW_SECONDS, Sessions
from tito_io.serve.sqlite import SqliteStore
from tito_io.serve.store import BusyError, FencedError, StoreError
from tito_io.serve.stores import MemoryStore, open_store

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
needs_redis = pytest.mark.skipif(not wanted(), reason="there is no redis-server: TITO_REDIS=1 demands one")
MINE = {"authorization": "Bearer mine"}


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(params=["memory", "sqlite", *(["redis"] if wanted() else [])])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where each kind of store is."""
    found = {"memory": "memory", "sqlite": f"sqlite:{tmp_path / 's.db'}"}
    kind: str = request.param
    return found[kind] if kind in found else str(request.getfixturevalue("redis_url"))


async def talked(talk: Talk, turns: int, messages: list[Any], kept: list[int]) -> list[Any]:
    """Take turns whose prompts begin with all ids so far, which are `kept`; return the next prompt."""
    for _ in range(turns):
        answer = await talk.chat(messages, return_token_ids=True)
        assert answer["prompt_token_ids"][: len(kept)] == kept
        kept[:] = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
        messages = [*messages, answer["choices"][0]["message"], user()]
    return messages


async def test_an_idle_session_leaves_memory_and_comes_back(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "s.db")
    async with talking(store=store, choices=limited(loaded_seconds=0.0)) as talk:
        said = await talk.said(HELLO)
        await anyio.sleep(0.01)
        async with talk.gateway.sessions.using(talk.name):
            await talk.maintained()
            assert talk.loaded == 1  # in use it is not let go
        await anyio.sleep(0.01)
        await talk.maintained()
        assert talk.loaded == 0
        await talk.chat([*HELLO, said, user()])
        assert talk.engine.asked[-1][0] == "ids"
    await store.aclose()


async def test_what_is_named_goes_on_where_there_is_no_room_for_more() -> None:
    async with talking(choices=limited(sessions=2)) as talk:
        for headers, status in ((MINE, 200), (MINE, 200), ({"authorization": "Bearer another"}, 429)):
            answer = await talk.http.post(CHAT, json={"messages": HELLO}, headers=headers)
            assert answer.status_code == status
            talk.unload()
        full = await talk.http.post("/sessions")
    assert (full.status_code, "--max-sessions" in full.json()["error"]) == (429, True)


async def test_a_gateway_s_files_are_nobody_else_s_to_read(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "s.db")
    await store.create("a", b"{}")
    files = sorted(tmp_path.iterdir())  # noqa: ASYNC240  # a few names
    assert {"s.db", "s.db.lock", "s.db-wal"} <= {file.name for file in files}
    assert [file.name for file in files if file.stat().st_mode & 0o077] == []
    await store.aclose()


async def test_an_engine_that_keeps_ids_itself_is_told_by_messages_and_its_ids_are_shared() -> None:
    """Another gateway stands in for a session server."""
    transport = httpx2.ASGITransport(app(scripted_gateway(Scripted())), raise_app_exceptions=False)
    engine = Miles("http://inner", transport=transport)
    async with talking(build_gateway(engine, MemoryStore(), model="m")) as talk:
        await talked(talk, 4, list(HELLO), [])
        commits = await talk.commits()
        assert (await talk.session()).ids == len(commits[-1].step.ids)
    assert [one.origin.route for one in commits] == ["MITO", "KEPT", "KEPT", "KEPT"]
    await engine.aclose()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_session_in_use_stays_in_the_store_however_long(kind: str, tmp_path: Path) -> None:
    now = [0.0]
    store = MemoryStore() if kind == "memory" else SqliteStore.open(tmp_path / "s.db")
    store.clock = lambda: now[0]
    async with talking(Scripted(held=anyio.Event()), store=store, choices=limited(idle_seconds=60)) as talk:
        idle = await opened(talk.http)
        async with anyio.create_task_group() as group:
            group.start_soon(talk.chat, HELLO)
            await talk.engine.runs()
            for now[0] in (61.0, 122.0, 183.0):
                await talk.maintained()
            talk.engine.go_on()
        assert len((await talk.get()).json()["records"]) == 1
        assert (await talk.http.get(f"/sessions/{idle}")).status_code == 404
    await store.aclose()


async def test_looking_is_use_too_and_its_end_is_the_last() -> None:
    now = [0.0]
    store = MemoryStore(clock=lambda: now[0])
    async with talking(store=store, choices=limited(idle_seconds=60)) as talk:
        await talk.chat(HELLO)
        await talk.maintained()
        now[0] = 61
        assert (await talk.get()).status_code == 200
        await talk.maintained()
        assert await talk.gateway.sessions.exists(talk.name)
        now[0] = 122
        await talk.maintained()
        assert not await talk.gateway.sessions.exists(talk.name)


async def test_many_requests_at_once_load_a_session_once() -> None:
    async def slow(_: str) -> None:
        await anyio.sleep(0.01)

    store = Watched(before={"load": slow})
    async with talking(store=store) as talk:
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(talk.chat, HELLO)
        assert len(await talk.commits()) == 10
    assert store.calls["load"] == store.calls["claim"] == 1


async def test_a_restarted_gateway_goes_on(tmp_path: Path) -> None:
    messages, name, kept = list(HELLO), "", list[int]()
    for _ in range(3):
        store = SqliteStore.open(tmp_path / "s.db")
        gateway = embedded_gateway(store)
        async with client(gateway) as http:
            name = name or await opened(http)
            messages = await talked(Talk(gateway, http, name), 3, messages, kept)
        await store.aclose()


async def test_each_request_is_one_use_of_its_session() -> None:
    """A client that knows the number of uses deletes a session only if nobody has used it since."""
    async with talking() as talk:
        path, generation = f"/sessions/{talk.name}", "x-miles-session-generation"
        uses = [(await talk.get("/samples")).headers[generation] for _ in range(3)]
        assert uses == ["1", "2", "3"]
        assert (await talk.http.delete(path, headers={generation: "2"})).status_code == 412
        assert (await talk.http.delete(path, headers={generation: "3"})).status_code == 204


# Two gateways over one Redis.


@asynccontextmanager
async def pair(
    url: str,
    make: Callable[[RedisStore], Gateway] = lambda store: scripted_gateway(Scripted(), store),
    **options: float,
) -> AsyncIterator[tuple[Talk, Talk]]:
    """Open a session of a gateway, and show it at another one over the same store, too."""
    stores = [RedisStore.to(url, **options) for _ in range(2)]
    other = make(stores[1])
    async with talking(make(stores[0])) as talk, client(other) as http:
        yield talk, Talk(other, http, talk.name)
    for store in stores:
        await store.aclose()


@needs_redis
async def test_a_session_moves_between_gateways_and_keeps_every_id(redis_url: str) -> None:
    async with pair(redis_url, embedded_gateway) as both:
        messages, kept = list(HELLO), list[int]()
        for turn in range(12):
            messages = await talked(both[turn % 2], 1, messages, kept)
        for talk in both:
            forest = (await talk.session()).forest
            assert (len(forest), len(forest.leaves)) == (12, 1)


@needs_redis
async def test_two_gateways_asked_at_once_take_turns_and_lose_none(redis_url: str) -> None:
    async with pair(redis_url) as both:
        async with anyio.create_task_group() as group:
            for talk in both * 4:
                group.start_soon(talk.chat, HELLO)
        assert len(await both[0].commits()) == 8


@needs_redis
@pytest.mark.parametrize("renews", [False, True])
async def test_a_dead_owner_is_replaced_and_its_late_turn_is_refused(redis_url: str, renews: bool) -> None:
    """The first gateway stalls in the middle of a turn for longer than its lease, then goes on."""
    found: list[httpx2.Response] = []
    async with pair(redis_url, lease_seconds=0.2) as (stalled, alive):
        stalled.engine.held = anyio.Event()

        async def late() -> None:
            found.append(await stalled.post({"messages": HELLO}))

        async with anyio.create_task_group() as group:
            group.start_soon(late)
            await stalled.engine.runs()
            said = await alive.said(HELLO)
            await alive.chat([*HELLO, said, user()])
            if renews:  # it learns of that before the turn ends, and reads the session again
                await stalled.maintained()
                assert stalled.loaded == 0
                assert len(await stalled.nodes()) == 2
            stalled.engine.go_on()
        assert found[0].status_code == 503
        again = await stalled.chat([*HELLO, said, user("again")])
        assert stalled.engine.asked[-1][0] == "ids"  # it has read what the other one wrote
        nodes = await alive.nodes()
    assert (len(nodes), nodes[-1]["response_id"]) == (3, again["id"])


@needs_redis
async def test_a_long_turn_keeps_its_lease(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tito_io.serve.sessions.RENEW_SECONDS", 0.1)
    async with pair(redis_url, lease_seconds=0.4) as (slow, other), anyio.create_task_group() as group:
        slow.engine.held, other.gateway.sessions.patience = anyio.Event(), 0.2
        group.start_soon(slow.gateway.sessions.maintain)
        group.start_soon(slow.chat, HELLO)
        await anyio.sleep(1.0)
        busy = await other.post({"messages": HELLO})
        assert (busy.status_code, busy.json()["error"]["code"]) == (503, "session_busy")
        assert "x-should-retry" not in busy.headers  # later it may be free
        slow.engine.go_on()
        while not await slow.nodes():  # noqa: ASYNC110  # it has no event for this
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()


async def keyed(http: httpx2.AsyncClient) -> str:
    """Take a turn in the session of an API key; return its id."""
    answer = await http.post(CHAT, json={"messages": HELLO}, headers=MINE)
    return str(answer.headers["x-tito-session"])


@needs_redis
async def test_a_key_names_the_same_session_at_all_gateways_of_a_server(redis_url: str) -> None:
    async with pair(redis_url) as (one, other):
        assert await keyed(one.http) == await keyed(other.http)
        shown = await other.http.get("/session", headers=MINE)
        assert len(shown.json()["metadata"]["tree"]["nodes"]) == 2
        assert (await one.http.delete("/session", headers=MINE)).status_code == 204


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
    async with talking(store=RedisStore.to(redis_url)) as talk:
        store: Any = talk.gateway.sessions.store
        await store.aclose()
        store.client = RedisStore.to("redis://127.0.0.1:1/0").client
        assert (await talk.post({"messages": HELLO})).status_code == 503
        assert (await talk.http.post("/sessions")).status_code == 503
    await talk.gateway.sessions.store.aclose()


# What a store may do to a session.


@pytest.mark.parametrize("shared", [False, True])
async def test_a_session_goes_on_after_a_write_of_which_nobody_knows(shared: bool) -> None:
    """The row is there, nobody was told: whoever asks again gets that turn, and the next one its sibling."""
    store = Watched()
    store.shared = shared
    async with talking(store=store) as talk:
        messages = [*HELLO, await talk.said(HELLO), user()]
        store.after["put"] = failing(StoreError("the store failed: ConnectionError"))
        assert (await talk.post({"messages": messages})).status_code == 503
        store.after.clear()
        for asked in (2, 3):
            await talk.chat(messages)
            assert [kind for kind, *_ in talk.engine.asked[1:]] == ["ids"] * (asked - 1)
        nodes = await talk.nodes()
    assert [node["parent"] for node in nodes] == [None, *[nodes[0]["id"]] * 2]


async def test_a_session_that_is_read_again_takes_no_turn_of_those_who_still_use_the_old_one(
    address: str,
) -> None:
    """Both would have the epoch of the same owner, and neither would know what the other writes."""
    store = open_store(address, idle_seconds=60, durable=False)
    async with talking(store=store) as talk:
        said = await talk.said(HELLO)
        async with talk.gateway.sessions.using(talk.name) as old:
            made = attrs.evolve(old.commits[next(iter(old.commits))], parent=None)
            made = attrs.evolve(made, call=attrs.evolve(made.call, name="late"))
            old.must_reload = True  # a write of another turn failed
            async with talk.gateway.sessions.using(talk.name) as new:
                assert new is not old
                with pytest.raises(FencedError):
                    await old.commit([made])
                assert len(await new.commit([made])) == 1
            with pytest.raises(FencedError):
                await old.commit([made])
        await talk.chat([*HELLO, said, user()])
        nodes = await talk.nodes()
    assert ([node["id"] for node in nodes][1], len(nodes)) == ("late", 3)
    await store.aclose()


@pytest.mark.parametrize("shared", [False, True])
async def test_a_session_goes_on_after_its_store_has_lost_turns(shared: bool) -> None:
    """A turn after a lost one would be there and could never be read again, nor could any other turn.

    A server that does not wait for its disk forgets the latest turn when it is killed.
    """
    store = Watched()
    store.shared = shared
    async with talking(store=store) as talk:
        messages = [*HELLO, await talk.said(HELLO), user()]
        (row,) = (await store.load(talk.name)).rows.values()

        async def loses(name: str, epoch: int, place: int, *_: object) -> None:
            if place == 1:
                await MemoryStore.take_back(store, name, epoch, 0)

        store.before["put"] = loses
        refused = await talk.post({"messages": messages})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "session_lost")
        assert row not in (await store.load(talk.name)).rows.values()
        store.before.clear()
        await talk.chat(messages)
        assert talk.engine.asked[-1][0] == "messages"
        assert len(await talk.nodes()) == 1


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
    body = {"messages": HELLO, "model": "m"} if path.endswith("tokens") else {}
    async with talking() as talk:
        missing, there = [
            await talk.http.request(method, f"/sessions/{name}{path}", json=body)
            for name in ("nope", talk.name)
        ]
    assert (missing.status_code, "session not found" in missing.text) == (404, True)
    if path != "/version":  # which is the engine's, and it has none
        assert there.status_code in (200, 204)


async def two_of(store: MemoryStore) -> tuple[Sessions, Sessions, str]:
    """Return the sessions of two gateways over a store that they share, and one that was opened."""
    store.shared = True
    here, there = (Sessions(store, GatewayLimits(), Metrics()) for _ in range(2))
    return here, there, await here.open(SessionHead(created=0.0))


async def missed(sessions: Sessions, name: str) -> None:
    """Demand that a session cannot be used, and is not in memory."""
    with pytest.raises(RequestRefused, match=f"session not found: session_id={name}"):
        async with sessions.using(name):
            pass
    assert "tito_sessions_loaded 0.0" in sessions.metrics.text().decode()


@pytest.mark.parametrize("used", [True, False])
async def test_a_session_that_another_gateway_deletes_takes_no_more_requests(used: bool) -> None:
    """Neither while it is used here, nor while it is only in memory."""
    here, there, name = await two_of(MemoryStore())
    async with here.using(name):
        if used:
            assert await there.delete(name)
            await missed(here, name)
    if not used:
        assert await there.delete(name)
        await missed(here, name)


async def test_a_session_that_is_deleted_while_it_is_loaded_does_not_stay_in_memory() -> None:
    loading, go_on = anyio.Event(), anyio.Event()

    async def loaded(_: str) -> None:
        loading.set()
        await go_on.wait()

    sessions, _, name = await two_of(Watched(after={"load": loaded}))

    async def use() -> None:
        async with sessions.using(name):
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(use)
        await loading.wait()
        group.start_soon(sessions.delete, name)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    await missed(sessions, name)


async def test_a_session_that_is_deleted_before_it_is_loaded_is_not_found() -> None:
    store = Watched()
    store.before["load"] = store.delete
    sessions, _, name = await two_of(store)
    await missed(sessions, name)


async def test_idle_sessions_are_looked_for_less_often_than_leases_are_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Watched()
    monkeypatch.setattr("tito_io.serve.sessions.RENEW_SECONDS", 0.001)
    async with talking(store=store) as talk:
        await talk.maintained()
        assert store.calls["sweep"] == 1
        monkeypatch.setattr("tito_io.serve.sessions.SWEEP_SECONDS", 0.001)
        await talk.maintained()
        assert store.calls["sweep"] > 2


@pytest.mark.parametrize("known", [True, False])
async def test_a_store_that_lost_its_secret_gets_it_back(known: bool) -> None:
    """A gateway that needed none yet has none to give."""
    store, lost = Watched(), MemoryStore()
    sessions = Sessions(store, GatewayLimits(), Metrics())
    secret = await sessions.secret() if known else b"another gateway's"
    store.secret = lost.secret  # type: ignore[method-assign]  # as that of a server that began anew
    with anyio.move_on_after(0.02):
        await sessions.maintain()
    assert await lost.secret(b"another gateway's") == secret
    assert await sessions.secret() == secret


async def test_a_request_waits_for_another_gateway_and_not_for_much_longer() -> None:
    async def busy(*_: object) -> None:
        if store.calls["claim"] < 4:
            raise BusyError("another gateway is in the middle of a turn of this session")

    store = Watched(before={"claim": busy})
    async with talking(store=store) as talk:
        with anyio.fail_after(0.9):
            assert (await talk.get()).status_code == 200
    assert store.calls["claim"] == 4


async def test_a_lease_is_renewed_in_time_and_waited_for_to_its_end() -> None:
    """Two renewals may fail before it ends, and who waits outlasts a gateway that is dead."""
    assert 3 * RENEW_SECONDS < LEASE_SECONDS < PATIENCE_SECONDS


async def test_requests_read_and_write_no_more_than_they_need() -> None:
    """A request that only reads writes nothing, and a turn without images asks for none."""
    store = Watched()
    async with talking(store=store) as talk:
        await talk.chat(HELLO)
        for path in ("", "", "/view"):
            assert (await talk.get(path)).status_code == 200
    assert (store.calls["claim"], store.calls["media"], store.calls["put_media"]) == (1, 0, 0)


async def test_a_lease_ends_with_the_last_request_that_needs_it() -> None:
    store = Watched()
    sessions, _, name = await two_of(store)
    async with sessions.using(name):
        async with sessions.using(name):
            pass
        assert store.calls["release"] == 0
    assert store.calls["release"] == 1


async def test_a_lease_that_cannot_be_renewed_keeps_no_other_from_it() -> None:
    async def fails(name: str) -> None:
        if name == first:
            raise StoreError("the store failed")

    store, first = Watched(), ""
    sessions, _, name = await two_of(store)
    other = await sessions.open(SessionHead(created=0.0))
    async with sessions.using(name), sessions.using(other):
        first, store.before["claim"] = name, fails
        with anyio.move_on_after(0.05):
            await sessions.maintain()  # each claim of this store is another owner's
    assert "tito_sessions_loaded 1.0" in sessions.metrics.text().decode()
