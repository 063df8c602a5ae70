"""A request that is repeated after a crash gets the turn that was sampled for it, and trains once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx2
import orjson
import pytest
from starlette.datastructures import Headers

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
from tests.io.serve.gateway_process import started
from tests.io.serve.redis_server import redis_process, wanted
from tito_io.engines.protocol import Reply
from tito_io.serve.gateway import Gateway
from tito_io.serve.recovery import retry_key
from tito_io.serve.store import GoneError, StoreError
from tito_io.serve.stores import MemoryStore
from tito_io.serve.turn_handler import ClientConnection

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
KEY = "idempotency-key"
KINDS = ["sqlite", *(["redis"] if wanted() else [])]
DIES = """
import os, signal
from tito_io.serve.{module} import {owner}
async def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
{owner}.{method} = die
"""
UNDELIVERED = DIES.format(module="turn_handler", owner="ClientConnection", method="last")
"""Ends the gateway once a turn is committed, and before the last byte of its answer leaves."""
UNNOTED = DIES.format(module="session", owner="Session", method="received")
"""Ends the gateway once an answer has left, and before that is noted."""
ROUTES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": HELLO, "max_tokens": 20, "return_token_ids": True}),
    (CHAT, {"messages": HELLO, "max_tokens": 20, "stream": True}),
    (CHAT, {"messages": HELLO, "max_tokens": 20, "n": 3}),
    ("/v1/messages", {"messages": HELLO, "max_tokens": 20, "model": "m"}),
    ("/v1/messages", {"messages": HELLO, "max_tokens": 20, "model": "m", "stream": True}),
    ("/v1/responses", {"input": "Where is the bridge today?", "max_output_tokens": 20}),
    ("/v1/responses", {"input": "Where is the bridge today?", "max_output_tokens": 20, "stream": True}),
]


def test_a_key_is_stored_under_the_same_name_in_every_version() -> None:
    """A newer gateway answers the retry of a request that an older one answered."""
    assert retry_key(Headers({KEY: "mine"})) == "3fd30542fe3f61b14bd4a4b2dc0b6fb3"
    assert retry_key(Headers()) is None


STORES = pytest.mark.parametrize("address", KINDS, indirect=True)


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return where a store is that outlives its gateway."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'sessions.db'}"
    else:
        with redis_process(durable=True) as server:
            yield server.url


def nodes(http: httpx2.Client, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(f"/sessions/{name}").json()["metadata"]["tree"]["nodes"]
    return found


def crashed(address: str, first: str, take: Callable[[httpx2.Client], Any]) -> None:
    """Start a gateway that ends in the middle of the turn that `take` asks for."""
    with started("--store", address, first=first) as process:
        with httpx2.Client(base_url=process.url, timeout=60) as http:
            take(http)
        assert process.process.wait(60) == -9


def lost(http: httpx2.Client, path: str, body: dict[str, Any], headers: dict[str, str]) -> str:
    """Ask for a turn that does not arrive; return the session."""
    name = str(http.post("/sessions").json()["session_id"])
    with pytest.raises(httpx2.RequestError):
        http.post(f"/sessions/{name}{path}", json=body, headers=headers)
    return name


@pytest.mark.parametrize(
    ("address", "path", "body", "keyed"),
    [
        *(("sqlite", *route, False) for route in ROUTES),
        ("sqlite", *ROUTES[0], True),
        *((kind, *ROUTES[0], False) for kind in KINDS[1:]),
    ],
    indirect=["address"],
)
def test_a_turn_that_was_lost_in_a_kill_is_the_answer_to_its_request(
    path: str, body: dict[str, Any], keyed: bool, address: str
) -> None:
    headers = {KEY: "a"} if keyed else {}
    names: list[str] = []
    crashed(address, UNDELIVERED, lambda http: names.append(lost(http, path, body, headers)))
    (name,), choices = names, body.get("n", 1)
    with started("--store", address) as process, httpx2.Client(base_url=process.url, timeout=60) as http:
        stored = nodes(http, name)
        assert [node.get("received") for node in stored] == [False] * choices
        answers = [
            http.post(f"/sessions/{name}{path}", json=body, headers={KEY: key} if keyed else {})
            for key in ("a", "b")
        ]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert stored[0]["response_id"] in answers[0].text
        assert stored[0]["response_id"] not in answers[1].text
        now = nodes(http, name)
        assert now[:choices] == [{k: v for k, v in node.items() if k != "received"} for node in stored]
        assert [node["parent"] for node in now] == [None] * (2 * choices)
        assert not [node for node in now if "received" in node]
        assert f"tito_recovered_total {choices}.0" in http.get("/metrics").text
        if path == CHAT and "return_token_ids" in body:
            shown = http.get(f"/sessions/{name}/samples", headers={"accept": "application/json"}).json()
            choice = answers[0].json()["choices"][0]
            tokens = answers[0].json()["prompt_token_ids"] + choice["token_ids"]
            assert shown["samples"][0]["tokens"] == tokens
            assert len(shown["samples"]) == 2


@STORES
def test_a_turn_that_was_received_is_no_answer_to_an_equal_request_after_a_kill(address: str) -> None:
    """Trainers sample several turns after one prompt."""
    path, body = ROUTES[0]
    with started("--store", address) as process:
        with httpx2.Client(base_url=process.url, timeout=60) as http:
            name = str(http.post("/sessions").json()["session_id"])
            first = http.post(f"/sessions/{name}{path}", json=body).json()
            assert not [node for node in nodes(http, name) if "received" in node]
            other = {**body, "messages": [{"role": "user", "content": "Another one."}]}
            http.post(f"/sessions/{name}{path}", json=other)  # what is stored of it comes after that note
        process.kill()
    with started("--store", address) as process, httpx2.Client(base_url=process.url, timeout=60) as http:
        again = http.post(f"/sessions/{name}{path}", json=body).json()
        assert again["id"] != first["id"]
        assert len(nodes(http, name)) == 3


@STORES
def test_a_turn_that_its_client_continues_was_received_whatever_was_noted(address: str) -> None:
    path, body = ROUTES[0]
    found: list[Any] = []

    def take(http: httpx2.Client) -> None:
        name = str(http.post("/sessions").json()["session_id"])
        with http.stream("POST", f"/sessions/{name}{path}", json=body) as answer:
            found.extend((name, answer.read(), answer.json()))

    crashed(address, UNNOTED, take)
    name, _, first = found
    with started("--store", address) as process, httpx2.Client(base_url=process.url, timeout=60) as http:
        assert [node["received"] for node in nodes(http, name)] == [False]
        message = first["choices"][0]["message"]
        going_on = {**body, "messages": [*HELLO, message, user()]}
        assert http.post(f"/sessions/{name}{path}", json=going_on).status_code == 200
        assert http.post(f"/sessions/{name}{path}", json=body).json()["id"] != first["id"]
        assert not [node for node in nodes(http, name) if "received" in node]


# What is a repeated request, and what is not: a store that a gateway left in the middle of a turn.


class Dropping(MemoryStore):
    """A store on which a gateway ends in the middle: it notes nothing that was received."""

    async def received(self, *_: object) -> None:
        raise StoreError("the store failed: ConnectionError")


def kept_of(store: MemoryStore) -> MemoryStore:
    """Return a store as the next gateway finds it."""
    kept = MemoryStore()
    store._db.backup(kept._db)
    return kept


def texts(answer: httpx2.Response) -> Any:
    """Return an answer's JSON, or the texts of a stream put together by their kinds."""
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json()
    found: dict[str, str] = {}
    for line in answer.text.splitlines():
        event = orjson.loads(line[6:]) if line.startswith("data: {") else {}
        choices = event.get("choices")
        delta = choices[0]["delta"] if choices else event.get("delta", {})
        pieces = delta if isinstance(delta, dict) else {event["type"]: delta}
        for kind, piece in pieces.items():
            found[kind] = found.get(kind, "") + str(piece or "")
    found.pop("type", None)
    return found


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_what_is_handed_out_is_what_was_lost(path: str, body: dict[str, Any]) -> None:
    store = Dropping()
    async with client(embedded_gateway(store)) as http:
        name = await opened(http)
        first = await http.post(f"/sessions/{name}{path}", json=body)
    later = embedded_gateway(kept_of(store))
    later.clock = lambda: time.time() + 60
    async with client(later) as http:
        again = await http.post(f"/sessions/{name}{path}", json=body)
    assert texts(again) == texts(first)
    assert len(str(texts(first))) > 20


async def left(*turns: dict[str, Any], headers: dict[str, str] | None = None) -> tuple[MemoryStore, str]:
    """Return a store with a session of turns that no client is known to have."""
    store = Dropping()
    async with client(scripted_gateway(Scripted(), store)) as http:
        name = await opened(http)
        for body in turns:
            answer = await http.post(f"/sessions/{name}{CHAT}", json=body, headers=headers)
            assert answer.status_code == 200
    return kept_of(store), name


def restarted(store: MemoryStore) -> tuple[Scripted, Gateway]:
    engine = Scripted(sampled=100)
    return engine, scripted_gateway(engine, store)


BODY: dict[str, Any] = {"messages": HELLO, "temperature": 1.0, "seed": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"messages": [user("Where is the bridge?")]},
        {"messages": [*HELLO, user()]},
        {"temperature": 0.5},
        {"seed": 2},
        {"max_tokens": 5},
        {"n": 2},
        {"stream": True},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
async def test_another_request_gets_a_turn_of_its_own(change: dict[str, Any]) -> None:
    store, name = await left(BODY)
    engine, gateway = restarted(store)
    async with client(gateway) as http:
        answer = await http.post(f"/sessions/{name}{CHAT}", json={**BODY, **change})
        assert answer.status_code == 200, answer.text
        assert len(engine.asked) == 1
        await chat(http, name, **BODY)  # and the lost turn is still there for its own request
        assert len(engine.asked) == 1


async def test_the_other_api_s_request_is_another_one() -> None:
    store, name = await left(BODY)
    engine, gateway = restarted(store)
    async with client(gateway) as http:
        body = {"messages": HELLO, "temperature": 1.0, "max_tokens": 50, "model": "m"}
        answer = await http.post(f"/sessions/{name}/v1/messages", json=body)
        assert answer.status_code == 200, answer.text
    assert len(engine.asked) == 1


async def test_equal_requests_stay_siblings_and_each_lost_turn_is_handed_out_once() -> None:
    """Four samples of one prompt, two of which were lost: two are handed out, and two are sampled."""
    store, name = await left(BODY, BODY)
    engine, gateway = restarted(store)
    async with client(gateway) as http:
        answers = [(await chat(http, name, **BODY))["id"] for _ in range(4)]
    assert len(set(answers)) == 4
    assert len(engine.asked) == 2


@pytest.mark.parametrize("n", [1, 2])
async def test_two_equal_requests_at_once_get_turns_of_their_own(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    store, name = await left({**BODY, "n": n})
    engine, gateway = restarted(store)
    start, both, answers = ClientConnection.start, anyio.Event(), list[str]()
    begun: list[ClientConnection] = []

    async def together(self: ClientConnection, *args: Any) -> None:
        begun.append(self)
        if len(begun) == 2:
            both.set()
        await both.wait()
        await start(self, *args)

    async def talk() -> None:
        answers.append((await chat(http, name, **BODY, n=n))["id"])

    monkeypatch.setattr(ClientConnection, "start", together)
    async with client(gateway) as http, anyio.create_task_group() as group:
        group.start_soon(talk)
        group.start_soon(talk)
    assert len(set(answers)) == 2
    assert len(engine.asked) == 1


async def test_a_client_s_key_makes_requests_one_and_makes_them_two() -> None:
    """The key says more than the bodies: it holds for a turn that was received, too."""
    engine = Scripted()
    async with client(scripted_gateway(engine)) as http:
        name = await opened(http)
        found = []
        for key in ("a", "a", "b", "a", None, None):
            headers = {} if key is None else {KEY: key}
            answer = await http.post(f"/sessions/{name}{CHAT}", json=BODY, headers=headers)
            found.append(answer.json()["id"])
        other = {**BODY, "seed": 7}
        changed = (await http.post(f"/sessions/{name}{CHAT}", json=other, headers={KEY: "a"})).json()["id"]
    assert found[0] == found[1] == found[3]
    assert len({*found, changed}) == 5
    assert len(engine.asked) == 5


async def waits(gateway: Gateway) -> None:
    """Return once a request waits for another one with its key."""
    with anyio.fail_after(5):  # or it never does
        while not any(one.statistics().tasks_waiting for one in gateway.sessions._answering.values()):  # noqa: ASYNC110  # nobody tells
            await anyio.sleep(0.001)


@pytest.mark.parametrize(("second", "asked"), [(BODY, 1), ({**BODY, "seed": 7}, 2)])
async def test_equal_requests_with_one_key_at_once_get_one_turn(second: dict[str, Any], asked: int) -> None:
    """A proxy may send a request twice; another body is a request of its own, and waits for nothing."""
    engine = Scripted(held=anyio.Event())
    gateway = scripted_gateway(engine)
    found = list[str]()

    async def talk(body: dict[str, Any]) -> None:
        found.append((await http.post(path, json=body, headers={KEY: "a"})).json()["id"])

    async with client(gateway) as http:
        path = f"/sessions/{await opened(http)}{CHAT}"
        async with anyio.create_task_group() as group:
            group.start_soon(talk, BODY)
            group.start_soon(talk, second)
            if asked == 1:
                await waits(gateway)
            while engine.running < asked:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.001)
            assert engine.held is not None
            engine.held.set()
    assert len(set(found)) == len(engine.asked) == asked


async def test_a_request_that_waits_for_one_with_its_key_gets_a_turn_if_that_one_is_given_up() -> None:
    engine = Scripted(held=anyio.Event())
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        path = f"/sessions/{await opened(http)}{CHAT}"

        async def talk(scope: anyio.CancelScope) -> None:
            with scope:
                assert (await http.post(path, json=BODY, headers={KEY: "a"})).status_code == 200
                assert not scope.cancel_called

        first = anyio.CancelScope()
        async with anyio.create_task_group() as group:
            group.start_soon(talk, first)
            while not engine.running:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.001)
            group.start_soon(talk, anyio.CancelScope())
            await waits(gateway)
            first.cancel()
            assert engine.held is not None
            engine.held.set()
    assert (engine.cancelled, len(engine.asked)) == (1, 2)


@pytest.mark.parametrize("said", ["ok", "other"])
async def test_a_lost_turn_that_continued_a_message_is_the_answer_to_the_same_one(said: str) -> None:
    def going_on(first: Any) -> dict[str, Any]:
        return {"messages": [*HELLO, first], "continue_final_message": True, "max_tokens": 9}

    store, words = Dropping(), iter(["ok", "other"])
    async with client(scripted_gateway(Scripted(each=lambda _: next(words, "more")), store)) as http:
        name = await opened(http)
        ends = [(await chat(http, name, HELLO))["choices"][0]["message"] for _ in range(2)]
        (lost,) = [one for one in ends if one["content"] == "ok"]
        first = await chat(http, name, **going_on(lost))
    engine, gateway = restarted(kept_of(store))
    (message,) = [one for one in ends if one["content"] == said]
    async with client(gateway) as http:
        again = await chat(http, name, **going_on(message))
        async with gateway.sessions.using(name) as session:
            assert session.last_prompt is None  # no later one has the answer behind it
    assert (again["id"] == first["id"]) is (said == "ok")
    assert len(engine.asked) == (0 if said == "ok" else 1)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_continued_message_is_answered_again_with_what_was_new(streamed: bool) -> None:
    """Clients append the answer to the message that they sent."""
    words = iter(["one", " two"])
    async with client(scripted_gateway(Scripted(each=lambda _: next(words)))) as http:
        name = await opened(http)
        said = (await chat(http, name, HELLO))["choices"][0]["message"]
        body = {"messages": [*HELLO, said], "continue_final_message": True, "stream": streamed, "n": 1}
        headers = {KEY: "a"}
        first, again = [
            await http.post(f"/sessions/{name}{CHAT}", json=body, headers=headers) for _ in range(2)
        ]
        assert " two" in first.text
        assert texts(again) == texts(first)


@attrs.define
class Thinking(Scripted):
    """A scripted engine with reasoning, under the name that some servers have for it."""

    name_of_reasoning: str = "reasoning"
    thoughts: Iterator[str] = attrs.field(factory=lambda: iter(["I look", " twice", ""]))

    def _turn(self, prompt: list[int], n: int) -> Reply:
        reply, thought = super()._turn(prompt, n), next(self.thoughts)
        return attrs.evolve(reply, message={**(reply.message or {}), self.name_of_reasoning: thought})


@pytest.mark.parametrize("name_of_reasoning", ["reasoning", "reasoning_content"])
async def test_reasoning_of_a_continued_message_is_answered_again_without_what_the_client_had(
    name_of_reasoning: str,
) -> None:
    async with client(scripted_gateway(Thinking(name_of_reasoning=name_of_reasoning))) as http:
        name = await opened(http)
        before = (await chat(http, name, HELLO))["choices"][0]["message"]
        for key, thought in (("a", " twice"), ("b", None)):
            body = {"messages": [*HELLO, before], "continue_final_message": True}
            first, again = [
                (await http.post(f"/sessions/{name}{CHAT}", json=body, headers={KEY: key})).json()
                for _ in range(2)
            ]
            assert first == again
            assert first["choices"][0]["message"].get("reasoning") == thought
            whole = before["reasoning"] + (thought or "")
            before = {**before, "content": f"{before['content']}ok", "reasoning": whole}
            before["reasoning_content"] = whole


async def test_a_continued_message_is_known_by_its_key_after_another_turn_with_the_same_words() -> None:
    engine = Scripted()
    async with client(scripted_gateway(engine)) as http:
        name = await opened(http)
        said = (await chat(http, name, HELLO))["choices"][0]["message"]
        body = {"messages": [*HELLO, said], "continue_final_message": True}
        first = (await http.post(f"/sessions/{name}{CHAT}", json=body, headers={KEY: "a"})).json()
        await chat(http, name, HELLO)
        again = (await http.post(f"/sessions/{name}{CHAT}", json=body, headers={KEY: "a"})).json()
    assert again["id"] == first["id"]
    assert len(engine.asked) == 3


async def test_a_lost_turn_with_a_key_is_only_for_that_key() -> None:
    store, name = await left(BODY, headers={KEY: "a"})
    engine, gateway = restarted(store)
    async with client(gateway) as http:
        for headers, asked in (({}, 1), ({KEY: "b"}, 2), ({KEY: "a"}, 2)):
            await http.post(f"/sessions/{name}{CHAT}", json=BODY, headers=headers)
            assert len(engine.asked) == asked


async def test_what_is_handed_out_and_lost_again_is_there_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, name = await left(BODY)
    engine, gateway = restarted(store)

    async def broken(*_: object) -> None:
        raise OSError

    async with client(gateway) as http:
        await chat(http, name, [user("another")])
        with monkeypatch.context() as patch:
            patch.setattr(ClientConnection, "start", broken)
            assert (await http.post(f"/sessions/{name}{CHAT}", json=BODY)).status_code == 500
        node, other = (await http.get(f"/sessions/{name}")).json()["metadata"]["tree"]["nodes"]
        assert "received" not in other
        headers = {"accept": "application/json"}
        rows = (await http.get(f"/sessions/{name}/samples", headers=headers)).json()["samples"]
        assert node["received"] is rows[0]["metadata"]["leaf"]["received"] is False
        calls = (await http.get(f"/sessions/{name}/calls")).content.splitlines()
        assert [orjson.loads(one)["call"]["metadata"] for one in calls] == [{"received": False}, {}]
        assert "not known to be received" in (await http.get(f"/sessions/{name}/view")).text
        assert (await chat(http, name, **BODY))["id"] == node["response_id"]
        calls = (await http.get(f"/sessions/{name}/calls")).content.splitlines()
        assert [orjson.loads(one)["call"]["metadata"] for one in calls] == [{}, {}]
    assert len(engine.asked) == 1


async def test_a_response_that_was_stored_in_part_is_sampled_anew() -> None:
    """Its end cannot have been sent, and half an answer is none."""
    body = {**BODY, "n": 3}
    store, name = await left(body)
    await store.take_back(name, (await store.claim(name)).epoch, 2)
    engine, gateway = restarted(store)
    async with client(gateway) as http:
        answer = await chat(http, name, **body)
        found = (await http.get(f"/sessions/{name}")).json()["metadata"]["tree"]["nodes"]
    assert len(engine.asked) == 1
    assert {node["response_id"] for node in found} == {answer["id"]}
    assert len(found) == 3


async def test_a_store_that_fails_to_note_a_turn_does_not_fail_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Scripted()
    async with client(scripted_gateway(engine, Dropping())) as http:
        name = await opened(http)
        for _ in range(2):
            await chat(http, name, **BODY)
        shown = (await http.get(f"/sessions/{name}")).json()["metadata"]["tree"]["nodes"]
    assert [node.get("received") for node in shown] == [None, None]
    assert len(engine.asked) == 2
    assert "did not note that a turn was received" in caplog.text


async def test_a_turn_of_a_deleted_session_is_not_noted_anywhere() -> None:
    store = MemoryStore()
    await store.received("0" * 32, [0])
    with pytest.raises(GoneError):
        await store.load("0" * 32)


async def test_what_is_handed_out_is_received_then_and_counted() -> None:
    store, name = await left({**BODY, "n": 2}, {**BODY, "seed": 2})
    _, gateway = restarted(store)

    async def unreceived(http: httpx2.AsyncClient) -> list[bool]:
        found = (await http.get(f"/sessions/{name}")).json()["metadata"]["tree"]["nodes"]
        return [node.get("received", True) for node in found]

    async with client(gateway) as http:
        assert await unreceived(http) == [False, False, False]
        await chat(http, name, **BODY, n=2)
        assert await unreceived(http) == [True, True, False]
    text = gateway.metrics.text().decode()
    assert "tito_recovered_total 2.0" in text
    assert "tito_committed_total 0.0" in text


@pytest.mark.parametrize("n", [1, 3])
async def test_all_turns_of_an_answer_are_received_in_the_store_too(n: int) -> None:
    """Of an answer that arrived nothing is handed out again, also not after a restart."""
    store, engine = MemoryStore(), Scripted()
    async with client(scripted_gateway(engine, store)) as http:
        name = await opened(http)
        await chat(http, name, **BODY, n=n)
        assert ((await store.load(name)).unreceived, len((await store.load(name)).rows)) == (frozenset(), n)
    lost, name = await left({**BODY, "n": n})
    assert (await lost.load(name)).unreceived == frozenset(range(n))
    async with client(restarted(lost)[1]) as http:
        await chat(http, name, **BODY, n=n)
    assert (await lost.load(name)).unreceived == frozenset()


async def test_who_goes_on_after_one_choice_has_received_all_of_that_answer_and_no_other() -> None:
    store, name = await left({**BODY, "n": 2}, {**BODY, "messages": [user("Another one.")]})
    _, gateway = restarted(store)
    async with client(gateway) as http:
        said = {"role": "assistant", "content": "ok"}
        await chat(http, name, [*HELLO, said, user()])
        found = (await http.get(f"/sessions/{name}")).json()["metadata"]["tree"]["nodes"]
    assert [node.get("received", True) for node in found] == [True, True, False, True]


@pytest.mark.parametrize("n", [1, 2])
async def test_what_is_lost_again_leaves_other_lost_turns_as_they_are(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    body, other = {**BODY, "n": n}, {**BODY, "n": n, "seed": 2}
    store, name = await left(body, other)
    engine, gateway = restarted(store)

    async def broken(*_: object) -> None:
        raise OSError

    async with client(gateway) as http:
        with monkeypatch.context() as patch:
            patch.setattr(ClientConnection, "start", broken)
            assert (await http.post(f"/sessions/{name}{CHAT}", json=body)).status_code == 500
        found = (await http.get(f"/sessions/{name}")).json()["metadata"]["tree"]["nodes"]
        assert [node.get("received") for node in found] == [False, False] * n
        for asked in (other, body):
            await chat(http, name, **asked)
        assert engine.asked == []
