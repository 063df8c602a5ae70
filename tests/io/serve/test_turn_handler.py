"""A turn is committed just where its answer can be received: not before, and for no client that is gone."""

from __future__ import annotations

import logging
import re
from typing import Any

import anyio
import attrs
import httpx2
import orjson
import pytest

from tests.io.serve.gateway import (
    HELLO,
    Scripted,
    chat,
    client,
    embedded_gateway,
    opened,
    scripted_gateway,
    served,
    user,
)
from tito_io.engines.protocol import AbortedError, Reply, ServerError, UnreachableError
from tito_io.serve.app import app
from tito_io.serve.gateway import Gateway, GatewayOptions
from tito_io.serve.refusals import GatewayLimits
from tito_io.serve.session import Session
from tito_io.serve.store import FencedError, StoreError
from tito_io.serve.stores import MemoryStore
from tito_io.serve.turn_handler import UNSENT, ClientConnection

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"


@attrs.define(eq=False)
class Client:
    """A client that can go away at any moment, as an ASGI server tells of it."""

    sent: list[dict[str, Any]] = attrs.field(factory=list)
    gone: anyio.Event = attrs.field(factory=anyio.Event)
    seen: int = 0
    """How many turns of the session were stored when the last byte came."""
    leaves_after: int | None = None
    """After how many messages of the answer it goes away."""
    fails: bool = False
    """Whether handing it the end of the answer fails."""
    room: int | None = None
    """After how many messages the server has no room: the next one waits until the client leaves."""
    waits: anyio.Event = attrs.field(factory=anyio.Event)
    """Set when a message waits for room."""

    async def ask(self, gateway: Gateway, name: str, body: dict[str, Any]) -> None:
        raw = orjson.dumps(body)
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": f"/sessions/{name}{CHAT}",
            "raw_path": b"",
            "query_string": b"",
            "headers": [(b"content-length", str(len(raw)).encode())],
            "scheme": "http",
            "server": ("gateway", 80),
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        given = iter([{"type": "http.request", "body": raw, "more_body": False}])

        async def receive() -> dict[str, Any]:
            message = next(given, None)
            if message is None:
                await self.gone.wait()
                return {"type": "http.disconnect"}
            return message

        async def send(message: Any) -> None:
            await self.wait(message)
            if self.room == len(self.sent):
                self.waits.set()
                await self.gone.wait()
                return
            if message.get("more_body") is False and message["type"].endswith("body"):
                self.seen += await stored(gateway, name)
                if self.fails:
                    raise OSError("broken pipe")
            self.sent.append(message)
            if self.leaves_after == len(self.sent):
                self.gone.set()
            await anyio.lowlevel.checkpoint()

        await app(gateway)(scope, receive, send)

    async def wait(self, message: Any) -> None:
        """Wait before a message is taken; this client does not."""

    @property
    def whole(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False


@attrs.define
class Slow(MemoryStore):
    """A store that takes its time, and may fail."""

    put_begun: anyio.Event = attrs.field(factory=anyio.Event)
    go_on: anyio.Event | None = None
    fails: StoreError | None = None

    async def put(self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None) -> None:
        self.put_begun.set()
        if self.go_on is not None:
            await self.go_on.wait()
        if self.fails is not None:
            raise self.fails
        await super().put(name, epoch, place, row, after=after)


async def stored(gateway: Gateway, name: str) -> int:
    """Return how many turns the store has."""
    return len((await gateway.sessions.store.load(name)).rows)


async def turns(gateway: Gateway, name: str) -> int:
    """Return how many turns there are, demanding that memory and store agree."""
    async with gateway.sessions.using(name) as session:
        again = Session.restored(
            name, await gateway.sessions.store.load(name), session.store, session.limits, session.epoch
        )
        assert list(session.commits) == list(again.commits)
        assert (session.ids, len(session.trajectory)) == (again.ids, len(again.trajectory))
        assert session.last_prompt is None or session.last_prompt.commit in session.commits
        return len(session.commits)


async def session(gateway: Gateway) -> str:
    async with client(gateway) as http:
        return await opened(http)


BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@BOTH
async def test_the_turn_is_safe_before_its_last_byte_leaves(stream: bool) -> None:
    gateway = scripted_gateway(Scripted())
    name, one = await session(gateway), Client()
    await one.ask(gateway, name, {"messages": HELLO, "stream": stream})
    assert one.whole
    assert one.seen == 1


@pytest.mark.parametrize("after", [1, 2])
async def test_a_client_that_leaves_a_stream_changes_nothing(after: int) -> None:
    engine = Scripted(text="hello there")
    gateway = scripted_gateway(engine)
    name, one = await session(gateway), Client(leaves_after=after)
    await one.ask(gateway, name, {"messages": HELLO, "stream": True})
    assert not one.whole
    assert await turns(gateway, name) == 0
    async with client(gateway) as http:
        await chat(http, name, HELLO)
    assert await turns(gateway, name) == 1


async def test_what_comes_in_the_same_moment_is_sent_together() -> None:
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message["body"])

    connection = ClientConnection(send)
    async with anyio.create_task_group() as group:
        group.start_soon(connection.flush, group.cancel_scope)
        for part in (b"a", b"b", b"c"):
            await connection.more(part)
        await anyio.wait_all_tasks_blocked()
        assert sent == [b"abc"]
        await connection.more(b"d")
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert sent == [b"abc", b"d"]


async def test_a_stream_waits_for_a_client_that_takes_less_than_comes() -> None:
    room, sent = anyio.Event(), list[int]()

    async def send(message: Any) -> None:
        await room.wait()
        sent.append(len(message["body"]))

    connection = ClientConnection(send)
    parts = 0

    async def stream() -> None:
        nonlocal parts
        for parts in range(1, 9):  # noqa: B007  # how many were taken
            await connection.more(bytes(UNSENT // 2 + 1))

    async with anyio.create_task_group() as group:
        group.start_soon(connection.flush, group.cancel_scope)
        group.start_soon(stream)
        await anyio.wait_all_tasks_blocked()
        assert (parts, sent) == (2, [])
        room.set()
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert sum(sent) == 8 * (UNSENT // 2 + 1)


async def test_a_stream_that_cannot_be_sent_ends_the_request() -> None:
    async def send(_: Any) -> None:
        raise OSError("broken pipe")

    connection = ClientConnection(send)
    async with anyio.create_task_group() as group:
        group.start_soon(connection.flush, group.cancel_scope)
        await connection.more(b"a")
        await anyio.sleep_forever()
    assert connection.gone
    assert group.cancel_scope.cancel_called


async def test_a_client_that_leaves_a_stream_ends_the_sampling() -> None:
    engine = Scripted(text="hello there", steps=anyio.Event())
    gateway = scripted_gateway(engine)
    name, one = await session(gateway), Client(leaves_after=2)  # the head, and what came first
    with anyio.fail_after(5):
        await one.ask(gateway, name, {"messages": HELLO, "stream": True})
    assert (engine.cancelled, engine.running) == (1, 0)
    assert await turns(gateway, name) == 0


@pytest.mark.parametrize(
    ("stream", "length", "room"), [(False, 1, 1), (True, 1, 1), (False, 9_000, 1), (False, 9_000, 2)]
)
async def test_a_client_that_leaves_before_it_took_the_whole_answer_changes_nothing(
    stream: bool, length: int, room: int
) -> None:
    """A server waits while a client reads slowly, and says nothing when it drops the rest of an answer."""
    gateway = scripted_gateway(Scripted(text="hello there " * length))
    name, one = await session(gateway), Client(room=room)
    async with anyio.create_task_group() as group:
        group.start_soon(one.ask, gateway, name, {"messages": HELLO, "stream": stream})
        with anyio.fail_after(5):
            await one.waits.wait()
        one.gone.set()
    assert not one.whole
    assert await turns(gateway, name) == 0
    assert b"tito_unreceived_total 1.0" in gateway.metrics.text()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
@BOTH
async def test_an_answer_that_is_cut_on_a_real_connection_is_not_kept(stream: bool) -> None:
    """It has more bytes than sockets hold, so that its end waits for the client."""
    store = Slow()
    gateway = scripted_gateway(Scripted(text="x" * (16 << 20)), store)
    name = await session(gateway)
    body = orjson.dumps({"messages": HELLO, "stream": stream})
    head = f"POST /sessions/{name}{CHAT} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(body)}\r\n\r\n"
    async with served(app(gateway)) as url:
        async with await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2])) as connection:
            await connection.send(head.encode() + body)
            assert (await connection.receive()).startswith(b"HTTP/1.1 200")
            await store.put_begun.wait()
            await anyio.sleep(0.05)
        with anyio.fail_after(5):
            while gateway.sessions._loaded[name].calls:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.01)
        assert await turns(gateway, name) == 0
    assert b"tito_unreceived_total 1.0" in gateway.metrics.text()


@BOTH
async def test_a_client_that_leaves_just_when_the_turn_is_stored_changes_nothing(stream: bool) -> None:
    one = Client()

    class Leaving(MemoryStore):
        async def put(
            self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None
        ) -> None:
            await super().put(name, epoch, place, row, after=after)
            one.gone.set()

    gateway = scripted_gateway(Scripted(), Leaving())
    name = await session(gateway)
    await one.ask(gateway, name, {"messages": HELLO, "stream": stream})
    assert not one.whole
    assert await turns(gateway, name) == 0


@BOTH
async def test_a_client_that_leaves_while_the_turn_is_stored_changes_nothing(stream: bool) -> None:
    store = Slow(go_on=anyio.Event())
    gateway = scripted_gateway(Scripted(), store)
    name, one = await session(gateway), Client()
    async with anyio.create_task_group() as group:
        group.start_soon(one.ask, gateway, name, {"messages": HELLO, "stream": stream})
        await store.put_begun.wait()
        one.gone.set()
        await anyio.sleep(0.01)
        assert store.go_on is not None
        store.go_on.set()
    assert stream or not one.sent
    assert not one.whole
    assert await turns(gateway, name) == 0
    assert b"tito_unreceived_total 1.0" in gateway.metrics.text()


@BOTH
async def test_a_connection_that_breaks_under_the_last_byte_takes_the_turn_back(stream: bool) -> None:
    gateway = scripted_gateway(Scripted())
    name, one = await session(gateway), Client(fails=True)
    await one.ask(gateway, name, {"messages": HELLO, "stream": stream})
    assert one.seen == 1
    assert await turns(gateway, name) == 0
    assert [message["type"] for message in one.sent].count(
        "http.response.start"
    ) == 1  # and no error behind it
    assert b"error" not in b"".join(message.get("body", b"") for message in one.sent)


@BOTH
async def test_a_client_that_leaves_after_the_last_byte_was_served(stream: bool) -> None:
    gateway = scripted_gateway(Scripted())
    name, one = await session(gateway), Client()
    await one.ask(gateway, name, {"messages": HELLO, "stream": stream})
    one.gone.set()
    assert await turns(gateway, name) == 1


@BOTH
@pytest.mark.parametrize(("error", "status"), [(StoreError("disk"), 503), (FencedError("late"), 503)])
async def test_a_turn_that_cannot_be_stored_is_not_told(stream: bool, error: StoreError, status: int) -> None:
    gateway = scripted_gateway(Scripted(), Slow(fails=error))
    name, one = await session(gateway), Client()
    await one.ask(gateway, name, {"messages": HELLO, "stream": stream})
    text = b"".join(message.get("body", b"") for message in one.sent)
    if stream:
        assert one.sent[0]["status"] == 200  # it had begun
        assert b'"finish_reason":"stop"' not in text
        assert type(error).__name__.encode() in text
    else:
        assert one.sent[0]["status"] == status
    assert await turns(gateway, name) == 0


@BOTH
async def test_several_turns_of_one_request_are_stored_all_or_none(stream: bool) -> None:
    """The second of two rows fails: the first is taken back."""

    @attrs.define
    class Once(MemoryStore):
        puts: int = 0

        async def put(
            self, name: str, epoch: int, place: int, row: bytes, *, after: int | None = None
        ) -> None:
            self.puts += 1
            if self.puts == 2:
                raise StoreError("disk")
            await super().put(name, epoch, place, row, after=after)

    gateway = scripted_gateway(Scripted(), Once())
    name, one = await session(gateway), Client()
    await one.ask(gateway, name, {"messages": HELLO, "n": 2, "stream": stream})
    assert await turns(gateway, name) == 0
    async with client(gateway) as http:
        await chat(http, name, HELLO, n=2)
    assert await turns(gateway, name) == 2


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ServerError("POST http://engine answered 500"), 502),
        (UnreachableError("POST http://engine: nothing answers"), 503),
        (AbortedError("given up"), 502),
    ],
)
async def test_an_error_before_the_first_delta_has_a_status_also_of_a_stream(
    error: Exception, status: int
) -> None:
    engine = Scripted(raises=[error])
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        body = {"messages": HELLO, "stream": True}
        answer = await http.post(f"/sessions/{name}{CHAT}", json=body)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
        await chat(http, name, HELLO)
    assert await turns(gateway, name) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_whose_session_is_deleted_meanwhile_is_answered_and_not_kept(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As Miles' server does it: who deletes a session knows that, and the agent needs no error."""
    caplog.set_level(logging.INFO, "tito.serve")
    engine = Scripted(held=anyio.Event())
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        found: list[int] = []

        async def talk() -> None:
            body = {"messages": HELLO, "stream": stream}
            answer = await http.post(f"/sessions/{name}{CHAT}", json=body)
            found.append(answer.status_code)
            assert answer.text.rstrip().endswith("data: [DONE]" if stream else "}")

        async with anyio.create_task_group() as group:
            group.start_soon(talk)
            while not engine.running:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.001)
            assert (await http.delete(f"/sessions/{name}")).status_code == 204
            assert engine.held is not None
            engine.held.set()
        assert found == [200]
        assert (await http.get(f"/sessions/{name}")).status_code == 404
        answer = await http.post(f"/sessions/{name}{CHAT}", json={"messages": HELLO})
        assert answer.status_code == 404
    for line in (b"tito_committed_total 0.0", b"tito_uncommitted_total 1.0"):
        assert line in gateway.metrics.text()
    assert f"session {name[:8]}: turn not committed, its session was deleted, " in caplog.text


async def test_turns_wait_for_a_place_at_the_engine_and_do_not_fail() -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine, choices=GatewayOptions(limits=GatewayLimits(calls=3)))
    async with client(gateway) as http:
        names = [await opened(http) for _ in range(12)]
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(chat, http, name, HELLO)
    assert engine.most == 3
    assert engine.sampled == 24


async def test_two_at_once_are_siblings_and_neither_waits_for_the_other() -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        said = first["choices"][0]["message"]
        async with anyio.create_task_group() as group:
            for text in ("left", "right"):
                group.start_soon(chat, http, name, [*HELLO, said, user(text)])
        assert engine.most == 2
        async with gateway.sessions.using(name) as held:
            forest = held.forest
    assert len(forest.children[first["id"]]) == 2


async def test_a_sub_agent_and_a_compaction_are_trees_of_their_own() -> None:
    gateway = scripted_gateway(Scripted(each="answer {}".format))
    async with client(gateway) as http:
        name = await opened(http)
        messages: list[Any] = list(HELLO)
        for _ in range(3):
            said = (await chat(http, name, messages))["choices"][0]["message"]
            sub = {"role": "system", "content": "You name things."}
            await chat(http, name, [sub, user("Name this.")])
            messages = [*messages, said, user()]
        summary = [user("Summary so far: " + said["content"]), user("go on")]
        await chat(http, name, summary)
        async with gateway.sessions.using(name) as held:
            forest = held.forest
    kinds = [node.kind.name for node in forest.nodes]
    assert len(forest) == 7
    assert kinds.count("CONTINUES") == 2
    assert kinds.count("RETRIES") == 2
    assert len(forest.trees) >= 2


async def test_going_back_several_turns_is_a_branch_by_ids() -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        messages: list[Any] = list(HELLO)
        prompts = []
        for _ in range(5):
            prompts.append(messages)
            said = (await chat(http, name, messages))["choices"][0]["message"]
            messages = [*messages, said, user()]
        await chat(http, name, [*prompts[2][:3], user("instead")])
        assert engine.asked[-1][0] == "ids"
        async with gateway.sessions.using(name) as held:
            forest = held.forest
    assert len(forest.leaves) == 2


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("responses", {"input": "a", "previous_response_id": "resp_x"}, 404, "previous_response_id"),
        (
            "chat/completions",
            {
                "messages": [*HELLO, {"role": "assistant", "content": "a"}],
                "continue_final_message": True,
                "add_generation_prompt": False,
            },
            400,
            "continue_final_message",
        ),
        ("chat/completions", {"messages": HELLO, "input_ids": [1]}, 400, "input_ids"),
        ("chat/completions", {"messages": HELLO, "temperature": 0.3}, 400, "temperature"),
        ("chat/completions", {"messages": "a"}, 400, "messages"),
        ("chat/completions", {"messages": HELLO, "top_p": 0.5, "max_tokens": 0}, 400, "max_tokens"),
        ("chat/completions", {"messages": HELLO, "stop": [""]}, 400, "stop"),
    ],
)
async def test_an_error_names_the_field_that_is_wrong(
    path: str, body: dict[str, Any], status: int, param: str
) -> None:
    async with client(scripted_gateway(Scripted())) as http:
        name = await opened(http, temperature=0.7)
        answer = await http.post(f"/sessions/{name}/v1/{path}", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert param in error["message"]


async def test_an_error_names_the_field_that_the_engine_names_and_no_url_of_the_embedded_engine() -> None:
    async with client(embedded_gateway()) as http:
        name, body = await opened(http), {"messages": HELLO, "temperature": -1}
        error = (await http.post(f"/sessions/{name}/v1/chat/completions", json=body)).json()["error"]
    assert (error["param"], "http:" in error["message"]) == ("temperature", False)


async def test_an_error_names_no_field_that_the_request_does_not_have() -> None:
    """Here the limit is called `max_output_tokens`, and not as the arguments are called that it becomes."""
    async with client(scripted_gateway(Scripted())) as http:
        name, body = await opened(http), {"input": "a", "max_output_tokens": 0}
        answer = await http.post(f"/sessions/{name}/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, None)


async def pinged(gateway: Gateway, name: str, engine: Scripted, path: str, body: dict[str, Any]) -> str:
    """Return a stream whose turn is sampled only after its client received two pings."""
    assert engine.held is not None
    asked, where = {**body, "stream": True}, f"/sessions/{name}{path}"
    async with (
        served(app(gateway)) as url,
        httpx2.AsyncClient(base_url=url) as http,
        http.stream("POST", where, json=asked) as answer,
    ):
        assert answer.status_code == 200
        text, parts = "", answer.aiter_text()
        with anyio.fail_after(20):
            while text.count("\n\n") < 2:
                text += await anext(parts)
            engine.held.set()
            return text + "".join([part async for part in parts])


QUICK = GatewayOptions(ping_seconds=0.01)
ASKED = {"messages": HELLO, "max_tokens": 9, "model": "scripted"}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as uvicorn's
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
async def test_a_stream_begins_with_pings_where_its_turn_takes_long(path: str) -> None:
    engine = Scripted(held=anyio.Event())
    gateway = scripted_gateway(engine, choices=QUICK)
    async with client(gateway) as http:
        name = await opened(http)
    body = {"input": "hi"} if path.endswith("responses") else ASKED
    text = await pinged(gateway, name, engine, path, body)
    assert text.startswith(": ping\n\n: ping\n\n")
    rest = text.replace(": ping\n\n", "")
    assert rest.startswith(("data: ", "event: "))
    assert '"k"' in rest or '"ok"' in rest  # some wait until the message is whole
    assert b"tito_committed_total 1.0" in gateway.metrics.text()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as uvicorn's
async def test_an_error_after_pings_is_an_event() -> None:
    engine = Scripted(held=anyio.Event(), raises=[UnreachableError("POST http://engine: nothing answers")])
    gateway = scripted_gateway(engine, choices=QUICK)
    async with client(gateway) as http:
        name = await opened(http)
    text = await pinged(gateway, name, engine, CHAT, ASKED)
    assert "nothing answers" in text
    assert b"tito_committed_total 0.0" in gateway.metrics.text()


async def test_pings_go_on_while_a_turn_is_sampled_and_end_before_it_is_stored() -> None:
    """What is sent after the last byte would be no part of the answer."""
    engine, store = Scripted(steps=anyio.Event()), Slow(go_on=anyio.Event())
    gateway = scripted_gateway(engine, store, QUICK)
    name, one = await session(gateway), Client()

    def pings() -> int:
        return sum(message.get("body", b"").count(b": ping") for message in one.sent)

    async with anyio.create_task_group() as group:
        group.start_soon(one.ask, gateway, name, {"messages": HELLO, "stream": True})
        with anyio.fail_after(20):
            while pings() < 3:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.005)
        assert engine.steps is not None
        engine.steps.set()
        await store.put_begun.wait()
        before = pings()
        await anyio.sleep(0.1)
        after = pings()
        assert store.go_on is not None
        store.go_on.set()
    assert after == before
    assert one.whole
    assert [message["type"] for message in one.sent].count("http.response.start") == 1


async def test_the_head_of_a_stream_is_sent_whole_though_its_turn_is_sampled_meanwhile() -> None:
    """A ping begins it, and pings end with sampling."""

    @attrs.define(eq=False)
    class Busy(Client):
        begins: anyio.Event = attrs.field(factory=anyio.Event)

        async def wait(self, message: Any) -> None:
            if message["type"] == "http.response.start":
                self.begins.set()
                await anyio.sleep(0.05)

    engine, one = Scripted(held=anyio.Event()), Busy()
    gateway = scripted_gateway(engine, choices=QUICK)
    name = await session(gateway)
    async with anyio.create_task_group() as group:
        group.start_soon(one.ask, gateway, name, {"messages": HELLO, "stream": True})
        await one.begins.wait()
        assert engine.held is not None
        engine.held.set()
    assert one.sent[0]["type"] == "http.response.start"
    assert one.whole  # nothing comes behind the end, such as the ping that began it
    assert await turns(gateway, name) == 1


async def test_an_answer_in_one_piece_has_no_pings() -> None:
    engine = Scripted(held=anyio.Event())
    gateway = scripted_gateway(engine, choices=QUICK)
    async with client(gateway) as http, anyio.create_task_group() as group:
        name = await opened(http)

        async def release() -> None:
            await anyio.sleep(0.1)
            assert engine.held is not None
            engine.held.set()

        group.start_soon(release)
        answer = await chat(http, name, HELLO)
    assert answer["choices"][0]["message"]["content"] == "ok"


async def test_an_answer_says_when_its_request_came() -> None:
    async with client(scripted_gateway(Scripted(), clock=lambda: 1_234.5)) as http:
        name = await opened(http)
        chatted = await chat(http, name, HELLO)
        responded = (await http.post(f"/sessions/{name}/v1/responses", json={"input": HELLO})).json()
    assert (chatted["created"], responded["created_at"]) == (1_234, 1_234)


@pytest.mark.parametrize(
    ("path", "body", "field", "begins"),
    [
        ("/v1/chat/completions", {"messages": HELLO}, "id", "chatcmpl-"),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 5}, "id", "msg_"),
        ("/v1/responses", {"input": HELLO}, "id", "resp_"),
        ("/v1/models/m:generateContent", {"contents": [{"parts": [{"text": "a"}]}]}, "responseId", ""),
    ],
)
async def test_an_answer_s_id_begins_as_its_api_s_do(
    path: str, body: dict[str, Any], field: str, begins: str
) -> None:
    async with client(scripted_gateway(Scripted())) as http:
        answer = await http.post(f"/sessions/{await opened(http)}{path}", json={"model": "m", **body})
    assert re.fullmatch(rf"{begins}[0-9a-f]{{32}}", answer.json()[field])


class Parsed(Scripted):
    """An engine behind a parser that takes reasoning out of the text of a stream."""

    def _turn(self, prompt: list[int], n: int) -> Reply:
        reply = super()._turn(prompt, n)
        return attrs.evolve(reply, message={**(reply.message or {}), "reasoning": "hm"})


async def test_reasoning_that_no_delta_had_is_sent_before_the_text() -> None:
    """Anthropic's API has an order of parts; the server's parser tells of reasoning at the end alone."""
    async with client(scripted_gateway(Parsed())) as http:
        name = await opened(http)
        answer = await http.post(f"/sessions/{name}/v1/messages", json={**ASKED, "stream": True})
    found = re.findall(r'"type":"(thinking_delta|text_delta)"', answer.text)
    assert list(dict.fromkeys(found)) == ["thinking_delta", "text_delta"]
