"""A turn is committed just where its answer can be received: not before, and for no client that is gone."""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any

import anyio
import attrs
import httpx2
import orjson
import pytest

from tests.io.serve.gateway import (
    CHAT,
    HELLO,
    Scripted,
    Talk,
    Watched,
    chat,
    client,
    embedded_gateway,
    failing,
    limited,
    opened,
    scripted_gateway,
    served,
    talking,
    user,
)
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    Reply,
    Sampling,
    ServerError,
    UnreachableError,
    Watch,
)
from tito_io.engines.vllm import VLLM
from tito_io.serve.app import app
from tito_io.serve.gateway import Gateway, GatewayOptions, build_gateway
from tito_io.serve.session import Session
from tito_io.serve.store import FencedError, StoreError
from tito_io.serve.stores import MemoryStore
from tito_io.serve.turn_handler import UNSENT, ClientConnection

pytestmark = pytest.mark.anyio
SAID = [*HELLO, {"role": "assistant", "content": "a"}]
QUICK = GatewayOptions(ping_seconds=0.01)
PING = b'"delta":{},"logprobs":null,"finish_reason":null'
"""What pings of a chat have."""


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

    async def ask(self, gateway: Gateway, name: str, *, stream: bool, **more: Any) -> None:
        raw = orjson.dumps({"messages": HELLO, "stream": stream, **more})
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
    def text(self) -> bytes:
        """What it was sent."""
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def whole(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False


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
    async with talking(gateway) as talk:
        return talk.name


async def served_to(one: Client, gateway: Gateway, *, stream: bool) -> int:
    """Let a client ask for a first turn; return how many turns are kept of it."""
    name = await session(gateway)
    with anyio.fail_after(20):
        await one.ask(gateway, name, stream=stream)
    return await turns(gateway, name)


BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


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
        group.start_soon(partial(one.ask, gateway, name, stream=stream))
        with anyio.fail_after(20):
            await one.waits.wait()
        one.gone.set()
    assert not one.whole
    assert await turns(gateway, name) == 0
    assert b"tito_unreceived_total 1.0" in gateway.metrics.text()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
@BOTH
async def test_an_answer_that_is_cut_on_a_real_connection_is_not_kept(stream: bool) -> None:
    """It has more bytes than sockets hold, so that its end waits for the client."""
    store = Watched()
    gateway = scripted_gateway(Scripted(text="x" * (16 << 20)), store)
    name = await session(gateway)
    body = orjson.dumps({"messages": HELLO, "stream": stream})
    head = f"POST /sessions/{name}{CHAT} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(body)}\r\n\r\n"
    async with served(app(gateway)) as url:
        async with await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2])) as connection:
            await connection.send(head.encode() + body)
            assert (await connection.receive()).startswith(b"HTTP/1.1 200")
            with anyio.fail_after(20):
                while not store.calls["put"]:  # noqa: ASYNC110  # it has no event for this
                    await anyio.sleep(0.01)
            await anyio.sleep(0.05)
        with anyio.fail_after(20):
            while b"tito_unreceived_total 1.0" not in gateway.metrics.text():  # noqa: ASYNC110  # likewise
                await anyio.sleep(0.01)
        assert await turns(gateway, name) == 0


@BOTH
async def test_a_connection_that_breaks_under_the_last_byte_takes_the_turn_back(stream: bool) -> None:
    one = Client(fails=True)
    assert await served_to(one, scripted_gateway(Scripted()), stream=stream) == 0
    assert one.seen == 1
    heads = [message for message in one.sent if message["type"] == "http.response.start"]
    assert (len(heads), b"error" in one.text) == (1, False)  # and no error behind it


@BOTH
@pytest.mark.parametrize(
    ("error", "code"), [(StoreError("disk"), b"store_failed"), (FencedError("late"), b"session_moved")]
)
async def test_a_turn_that_cannot_be_stored_is_no_answer(
    stream: bool, error: StoreError, code: bytes
) -> None:
    one = Client()
    gateway = scripted_gateway(Scripted(), Watched(before={"put": failing(error)}))
    assert await served_to(one, gateway, stream=stream) == 0
    assert one.sent[0]["status"] == (200 if stream else 503)  # a stream had begun
    assert b'"finish_reason":"stop"' not in one.text
    assert not stream or code in one.text


@BOTH
async def test_several_turns_of_one_request_are_stored_all_or_none(stream: bool) -> None:
    """The second of two rows fails: the first is taken back."""

    async def second(*_: object) -> None:
        if store.calls["put"] == 2:
            raise StoreError("disk")

    store = Watched(before={"put": second})
    async with talking(store=store) as talk:
        await Client().ask(talk.gateway, talk.name, n=2, stream=stream)
        assert await turns(talk.gateway, talk.name) == 0
        await talk.chat(HELLO, n=2)
        assert await turns(talk.gateway, talk.name) == 2


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
    async with talking(Scripted(raises=[error])) as talk:
        body = {"messages": HELLO, "stream": True}
        answer = await talk.post(body)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
        await talk.chat(HELLO)
    assert await turns(talk.gateway, talk.name) == 1


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (failing(httpx2.ConnectError("")), "or correct --base-url of the gateway"),
        (failing(httpx2.ReadTimeout("")), "allow more with --timeout of the gateway"),
        (lambda _: httpx2.Response(401), "pass the right --api-key of the gateway"),
    ],
)
async def test_a_client_learns_which_option_of_the_gateway_is_wrong(answer: Any, advice: str) -> None:
    """The client's own base URL and key are right."""
    engine = VLLM("http://engine:8000", transport=httpx2.MockTransport(answer))
    async with talking(build_gateway(engine, MemoryStore(), model="m")) as talk:
        found = await talk.post({"messages": HELLO})
    assert found.json()["error"]["message"].endswith(advice)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_whose_session_is_deleted_meanwhile_is_answered_and_not_kept(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As Miles' server does it: who deletes a session knows that, and the agent needs no error."""
    caplog.set_level(logging.INFO, "tito.serve")
    found: list[httpx2.Response] = []
    async with talking(Scripted(held=anyio.Event())) as talk:

        async def ask() -> None:
            found.append(await talk.post({"messages": HELLO, "stream": stream}))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await talk.engine.runs()
            assert (await talk.http.delete(f"/sessions/{talk.name}")).status_code == 204
            talk.engine.go_on()
        assert [one.status_code for one in found] == [200]
        assert found[0].text.rstrip().endswith("data: [DONE]" if stream else "}")
        assert (await talk.get()).status_code == (await talk.post({"messages": HELLO})).status_code == 404
    for line in ("tito_committed_total 0.0", "tito_uncommitted_total 1.0"):
        assert line in talk.metrics
    assert f"session {talk.name[:8]}: turn not committed, its session was deleted, " in caplog.text


async def test_turns_wait_for_a_place_at_the_engine_and_do_not_fail() -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine, choices=limited(calls=3))
    async with client(gateway) as http:
        names = [await opened(http) for _ in range(12)]
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(chat, http, name, HELLO)
    assert engine.most == 3
    assert engine.sampled == 24


async def test_a_sub_agent_and_a_compaction_are_trees_of_their_own() -> None:
    async with talking(Scripted(each="answer {}".format)) as talk:
        messages: list[Any] = list(HELLO)
        for _ in range(3):
            said = await talk.said(messages)
            sub = {"role": "system", "content": "You name things."}
            await talk.chat([sub, user("Name this.")])
            messages = [*messages, said, user()]
        summary = [user("Summary so far: " + said["content"]), user("go on")]
        await talk.chat(summary)
        forest = (await talk.session()).forest
    kinds = [node.kind.name for node in forest.nodes]
    assert len(forest) == 7
    assert kinds.count("CONTINUES") == 2
    assert kinds.count("RETRIES") == 2
    assert len(forest.trees) >= 2


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/responses", {"input": "a", "previous_response_id": "resp_x"}, 404, "previous_response_id"),
        (CHAT, {"messages": HELLO, "continue_final_message": True}, 400, "continue_final_message"),
        (CHAT, {"messages": HELLO, "input_ids": [1]}, 400, "input_ids"),
        (CHAT, {"messages": HELLO, "temperature": 0.3}, 400, "temperature"),
        (CHAT, {"messages": "a"}, 400, "messages"),
        (CHAT, {"messages": HELLO, "top_p": 0.5, "max_tokens": 0}, 400, "max_tokens"),
        (CHAT, {"messages": HELLO, "stop": [""]}, 400, "stop"),
        # Here the limit is not called as the argument is called that it becomes.
        ("/v1/responses", {"input": "a", "max_output_tokens": 0}, 400, None),
    ],
)
async def test_an_error_names_the_field_that_is_wrong(
    path: str, body: dict[str, Any], status: int, param: str | None
) -> None:
    async with client(scripted_gateway(Scripted())) as http:
        name = await opened(http, temperature=0.7)
        answer = await http.post(f"/sessions/{name}{path}", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert (param or "") in error["message"]
    assert "sampling" not in error["message"]  # what the library calls the arguments


async def test_an_error_names_the_field_that_the_engine_names_and_no_url_of_the_embedded_engine() -> None:
    async with talking(embedded_gateway()) as talk:
        name, body = talk.name, {"messages": HELLO, "temperature": -1}
        error = (await talk.http.post(f"/sessions/{name}/v1/chat/completions", json=body)).json()["error"]
    assert (error["param"], "http:" in error["message"]) == ("temperature", False)


async def pinged(
    talk: Talk, path: str, body: dict[str, Any], headers: dict[str, str] | None = None, *, of: str = "data: "
) -> str:
    """Return a stream whose turn is sampled only after its client received four events, or lines `of` a kind.

    Comments may come before them, on a machine that takes long to prepare the turn.
    """
    where = f"/sessions/{talk.name}{path}"
    async with talk.http.stream("POST", where, json={**body, "stream": True}, headers=headers) as answer:
        assert answer.status_code == 200
        text, parts = "", answer.aiter_text()
        with anyio.fail_after(20):
            while text.count(of) < 4:
                text += await anext(parts)
            talk.engine.go_on()
            return text + "".join([part async for part in parts])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as uvicorn's
@pytest.mark.parametrize(
    ("path", "begins"),
    [
        (CHAT, [{"role": "assistant"}, {}, {}]),
        ("/v1/messages", ["message_start", "ping", "ping"]),
        ("/v1/responses", ["response.created", "response.in_progress", "response.in_progress"]),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
async def test_a_stream_begins_with_pings_where_its_turn_takes_long(
    path: str, begins: list[Any], fails: bool
) -> None:
    errors: list[Exception] = [UnreachableError("POST http://engine: nothing answers")]
    engine = Scripted(held=anyio.Event(), raises=errors if fails else [])
    async with talking(engine, choices=QUICK, socket=True) as talk:
        body: dict[str, Any] = {"messages": HELLO, "max_tokens": 9, "model": "scripted"}
        text = await pinged(talk, path, {"input": "hi"} if path.endswith("responses") else body)
    found = [orjson.loads(data) for data in re.findall(r"^data: (\{.*)$", text, re.MULTILINE)]
    assert [one.get("type") or one["choices"][0]["delta"] for one in found[:3]] == begins
    assert [one.get("sequence_number", place) for place, one in enumerate(found)] == [*range(len(found))]
    assert f"tito_committed_total {float(not fails)}" in talk.metrics
    if fails:
        assert "nothing answers" in text
    else:
        assert '"k"' in text or '"ok"' in text  # some wait until the message is whole


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as uvicorn's
async def test_a_repeated_request_waits_with_comments_for_the_response_of_its_turn() -> None:
    """An event would name a response of its own, which is never stored."""
    body, key = {"messages": HELLO, "stream": True}, {"idempotency-key": "a"}
    texts = list[str]()
    async with talking(Scripted(held=anyio.Event()), choices=QUICK, socket=True) as talk:

        async def ask() -> None:
            texts.append((await talk.post(body, headers=key)).text)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await talk.engine.runs()
            texts.append(await pinged(talk, CHAT, body, key, of=": waiting"))
        (commit,) = await talk.commits()
    assert {name for text in texts for name in re.findall(r'"id":"(chatcmpl-[^"]*)"', text)} == {
        commit.response
    }


async def test_a_ping_comes_only_after_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """While deltas come, pings would be half of a stream; what is held back is no delta for a client."""
    connection, sleep, sent = ClientConnection(failing(OSError())), anyio.sleep, list[float]()

    async def talks(seconds: float) -> None:
        """Send a part in the place of the first sleep."""
        if sent:
            return await sleep(seconds)
        await connection.more(b"a")
        return sent.append(anyio.current_time())

    monkeypatch.setattr(anyio, "sleep", talks)
    await connection.silence(0.1)
    assert anyio.current_time() >= sent[0] + 0.1
    await connection.more(b"")
    with anyio.fail_after(0.05):
        await connection.silence(0.1)


async def test_pings_go_on_while_a_turn_is_sampled_and_end_before_it_is_stored() -> None:
    """What is sent after the last byte would be no part of the answer."""
    engine, one, counts = Scripted(steps=anyio.Event()), Client(), list[int]()

    async def stores(*_: object) -> None:
        counts.append(one.text.count(PING))
        await anyio.sleep(0.1)
        counts.append(one.text.count(PING))

    gateway = scripted_gateway(engine, Watched(before={"put": stores}), QUICK)
    name = await session(gateway)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(one.ask, gateway, name, stream=True))
        with anyio.fail_after(20):
            while one.text.count(PING) < 3:  # noqa: ASYNC110  # it has no event for this
                await anyio.sleep(0.005)
        assert engine.steps is not None
        engine.steps.set()
    assert counts[0] == counts[1]
    assert one.whole
    assert [message["type"] for message in one.sent].count("http.response.start") == 1


async def test_the_head_of_a_stream_is_sent_whole_though_its_turn_is_sampled_meanwhile() -> None:
    """A ping begins it, and pings end with sampling."""
    engine = Scripted(held=anyio.Event())

    class Busy(Client):
        async def wait(self, message: Any) -> None:
            if message["type"] == "http.response.start":
                engine.go_on()
                await anyio.sleep(0.05)

    one = Busy()
    assert await served_to(one, scripted_gateway(engine, choices=QUICK), stream=True) == 1
    assert one.sent[0]["type"] == "http.response.start"
    assert one.whole  # nothing comes behind the end, such as the ping that began it


async def test_an_answer_in_one_piece_has_no_pings() -> None:
    engine = Scripted(held=anyio.Event())
    async with talking(engine, choices=QUICK) as talk, anyio.create_task_group() as group:

        async def release() -> None:
            await anyio.sleep(0.1)
            engine.go_on()

        group.start_soon(release)
        assert (await talk.said(HELLO))["content"] == "ok"


async def test_an_answer_says_when_its_request_came() -> None:
    async with talking(clock=lambda: 1_234.5) as talk:
        chatted = await talk.chat(HELLO)
        responded = (await talk.post({"input": HELLO}, "/v1/responses")).json()
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
    async with talking() as talk:
        answer = await talk.post({"model": "m", **body}, path)
    assert re.fullmatch(rf"{begins}[0-9a-f]{{32}}", answer.json()[field])


async def test_reasoning_that_no_delta_had_is_sent_before_the_text() -> None:
    """Anthropic's API has an order of parts; the server's parser tells of reasoning at the end alone."""
    message = {"role": "assistant", "content": "ok", "reasoning": "hm"}
    async with talking(Scripted(told={"message": message})) as talk:
        answer = await talk.post({"messages": HELLO, "max_tokens": 9, "stream": True}, "/v1/messages")
    found = re.findall(r'"type":"(thinking_delta|text_delta)"', answer.text)
    assert list(dict.fromkeys(found)) == ["thinking_delta", "text_delta"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
@BOTH
async def test_a_client_that_leaves_while_its_turn_is_sampled_ends_the_sampling(stream: bool) -> None:
    async with talking(Scripted(held=anyio.Event()), socket=True) as talk:
        async with anyio.create_task_group() as group:
            group.start_soon(talk.post, {"messages": HELLO, "stream": stream})
            await talk.engine.runs()
            group.cancel_scope.cancel()
        with anyio.fail_after(20):
            while talk.engine.running:  # noqa: ASYNC110  # it has no event for this
                await anyio.sleep(0.005)
        assert talk.engine.cancelled == 1
        talk.engine.go_on()
        answer = await talk.chat(HELLO)  # the retry does not diverge: it is the only turn
        assert [node["response_id"] for node in await talk.nodes()] == [answer["id"]]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
async def test_a_stream_comes_as_it_is_sampled() -> None:
    engine = Scripted(steps=anyio.Event(), text="hello")
    async with talking(engine, socket=True) as talk:
        body = {"messages": [*HELLO, await talk.said(HELLO), user()], "stream": True}
        async with talk.http.stream("POST", f"/sessions/{talk.name}{CHAT}", json=body) as answer:
            lines = answer.aiter_lines()
            seen = ""
            with anyio.fail_after(20):
                while '"content":"h"' not in seen:
                    seen += await anext(lines)
            assert engine.running == 1  # and the rest is not sampled yet
            assert engine.steps is not None
            engine.steps.set()
            rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"stop"' in "".join(rest)


@attrs.define
class Thoughtful(Scripted):
    """An engine whose prompts leave reasoning open."""

    async def sampled_turns(self, prompt: list[int], sampling: Sampling, watch: Watch | None) -> Reply:
        if watch is not None:
            for text in ("hm", "</think>", "ok"):
                await watch(Delta(ids=(900,), text=text, thinking=True))
        message = {"role": "assistant", "content": "ok", "reasoning": "hm"}
        return attrs.evolve(await super().sampled_turns(prompt, sampling, None), message=message)


async def test_a_stream_begins_with_the_reasoning_that_its_prompt_left_open() -> None:
    async with talking(Thoughtful()) as talk:
        body = {"messages": [*HELLO, await talk.said(HELLO), user()], "stream": True}
        answer = await talk.post(body)
    chunks = [orjson.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "hm"
    assert "".join(delta.get("content") or "" for delta in deltas) == "ok"


async def test_a_retry_while_a_later_turn_is_in_flight_harms_neither() -> None:
    async with talking() as talk:
        second_prompt = [*HELLO, await talk.said(HELLO), user("two")]
        second = await talk.chat(second_prompt)
        third_prompt = [*second_prompt, second["choices"][0]["message"], user("three")]
        talk.engine.held = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(talk.chat, third_prompt)
            group.start_soon(talk.chat, second_prompt)
            await talk.engine.runs(2)
            talk.engine.go_on()
        session = await talk.session()
    kinds = sorted(node.kind.name for node in session.forest.nodes)
    assert kinds == ["CONTINUES", "CONTINUES", "RETRIES", "UNRELATED"]
    third = next(one for one in session.commits.values() if len(one.step.prompt) == 5)
    continued = session.response(second["id"])
    assert continued is not None
    assert third.step.prompt_ids.starts_with(continued.step.ids)


@BOTH
async def test_the_turn_is_safe_before_its_last_byte_leaves(stream: bool) -> None:
    one = Client()
    assert await served_to(one, scripted_gateway(Scripted()), stream=stream) == 1
    assert (one.whole, one.seen) == (True, 1)


@pytest.mark.parametrize("after", [1, 2])
async def test_a_client_that_leaves_a_stream_ends_the_sampling_and_changes_nothing(after: int) -> None:
    engine, one = Scripted(text="hello there", steps=anyio.Event()), Client(leaves_after=after)
    gateway = scripted_gateway(engine)
    assert await served_to(one, gateway, stream=True) == 0
    assert (one.whole, engine.cancelled, engine.running) == (False, 1, 0)


@BOTH
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_client_that_leaves_while_its_turn_is_stored_changes_nothing(
    moment: str, stream: bool
) -> None:
    one = Client()

    async def leaves(*_: object) -> None:
        one.gone.set()
        await anyio.sleep(0.01)

    hooks: Any = {moment: {"put": leaves}}
    gateway = scripted_gateway(Scripted(), Watched(**hooks))
    assert await served_to(one, gateway, stream=stream) == 0
    assert not one.whole
    assert b"tito_unreceived_total 1.0" in gateway.metrics.text()
