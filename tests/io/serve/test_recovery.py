"""A request that is repeated after a crash gets the turn that was sampled for it, and trains once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import orjson
import pytest
from starlette.datastructures import Headers

from tests.io.serve.gateway import (
    CHAT,
    HELLO,
    Scripted,
    Talk,
    Watched,
    client,
    embedded_gateway,
    failing,
    scripted_gateway,
    talking,
    user,
)
from tests.io.serve.gateway_process import started
from tests.io.serve.redis_server import redis_process, wanted
from tito_io.serve.app import app
from tito_io.serve.recovery import retry_key
from tito_io.serve.store import StoreError
from tito_io.serve.turn_handler import ClientConnection

pytestmark = pytest.mark.anyio
KEY = "idempotency-key"
KINDS = ["sqlite", *(["redis"] if wanted() else [])]
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


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return where a store is that outlives its gateway."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'sessions.db'}"
    else:
        with redis_process(durable=True) as server:
            yield server.url


KILLED = """
import os, signal
from tito_io.serve.turn_handler import ClientConnection
async def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
ClientConnection.last = die
"""
"""Ends the gateway once a turn is committed, and before the last byte of its answer leaves."""


def lost(address: str, path: str, body: dict[str, Any], headers: dict[str, str]) -> str:
    """Ask a gateway for a turn, in whose middle it ends; return the session."""
    with started("--store", address, first=KILLED) as process:
        with httpx2.Client(base_url=process.url, timeout=60) as http:
            name = str(http.post("/sessions").json()["session_id"])
            with pytest.raises(httpx2.RequestError):
                http.post(f"/sessions/{name}{path}", json=body, headers=headers)
        assert process.process.wait(60) == -9
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
    name, choices = lost(address, path, body, {KEY: "a"} if keyed else {}), body.get("n", 1)
    with started("--store", address) as process, httpx2.Client(base_url=process.url, timeout=60) as http:

        def nodes() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = http.get(f"/sessions/{name}").json()["metadata"]["tree"]["nodes"]
            return found

        stored = nodes()
        assert [node.get("received") for node in stored] == [False] * choices
        answers = [
            http.post(f"/sessions/{name}{path}", json=body, headers={KEY: key} if keyed else {})
            for key in ("a", "b")
        ]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert [stored[0]["response_id"] in answer.text for answer in answers] == [True, False]
        now = nodes()
        assert now[:choices] == [{k: v for k, v in node.items() if k != "received"} for node in stored]
        assert [node["parent"] for node in now] == [None] * (2 * choices)
        assert not [node for node in now if "received" in node]
        assert f"tito_recovered_total {choices}.0" in http.get("/metrics").text
        if "return_token_ids" in body:
            shown = http.get(f"/sessions/{name}/samples", headers={"accept": "application/json"}).json()
            choice = answers[0].json()["choices"][0]
            tokens = answers[0].json()["prompt_token_ids"] + choice["token_ids"]
            assert (shown["samples"][0]["tokens"], len(shown["samples"])) == (tokens, 2)


def dropping() -> Watched:
    """Return a store on which a gateway ends in the middle: it notes nothing that was received."""
    return Watched(before={"received": failing(StoreError("the store failed: ConnectionError"))})


# What is a repeated request, and what is not: a store that a gateway left in the middle of a turn.


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
    store = dropping()
    async with talking(embedded_gateway(store)) as talk:
        first = await talk.post(body, path)
    store.before.clear()
    later = embedded_gateway(store)
    later.clock = lambda: time.time() + 60
    async with client(later) as http:
        again = await http.post(f"/sessions/{talk.name}{path}", json=body)
    assert texts(again) == texts(first)
    assert len(str(texts(first))) > 20


async def left(*turns: dict[str, Any], headers: dict[str, str] | None = None) -> Talk:
    """Return a session of turns that no client is known to have, on a new gateway; 100 are sampled next."""
    store = dropping()
    async with talking(store=store) as talk:
        for body in turns:
            assert (await talk.post(body, headers=headers)).status_code == 200
    store.before.clear()
    return restarted(talk)


def restarted(talk: Talk) -> Talk:
    """Return a session on a new gateway."""
    gateway = scripted_gateway(Scripted(sampled=100), talk.gateway.sessions.store)
    http = httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app(gateway), raise_app_exceptions=False), base_url="http://gateway"
    )
    return Talk(gateway, http, talk.name)


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
        {"path": "/v1/messages", "max_tokens": 50, "model": "m"},
    ],
)
async def test_another_request_gets_a_turn_of_its_own(change: dict[str, Any]) -> None:
    talk, (path, more) = (
        await left(BODY),
        (change.get("path", CHAT), {k: change[k] for k in change if k != "path"}),
    )
    answer = await talk.post({**BODY, **more}, path)
    assert answer.status_code == 200, answer.text
    assert len(talk.engine.asked) == 1
    await talk.chat(**BODY)  # and the lost turn is still there for its own request
    assert len(talk.engine.asked) == 1


async def test_equal_requests_stay_siblings_and_each_lost_turn_is_handed_out_once() -> None:
    """Four samples of one prompt, two of which were lost: two are handed out, and two are sampled."""
    talk = await left(BODY, BODY)
    answers = [(await talk.chat(**BODY))["id"] for _ in range(4)]
    assert len(set(answers)) == 4
    assert len(talk.engine.asked) == 2


@pytest.mark.parametrize("n", [1, 2])
async def test_two_equal_requests_at_once_get_turns_of_their_own(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    talk = await left({**BODY, "n": n})
    start, both, answers = ClientConnection.start, anyio.Event(), list[str]()
    begun: list[ClientConnection] = []

    async def together(self: ClientConnection, *args: Any) -> None:
        begun.append(self)
        if len(begun) == 2:
            both.set()
        await both.wait()
        await start(self, *args)

    async def ask() -> None:
        answers.append((await talk.chat(**BODY, n=n))["id"])

    monkeypatch.setattr(ClientConnection, "start", together)
    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
    assert len(set(answers)) == 2
    assert len(talk.engine.asked) == 1


async def test_a_client_s_key_makes_requests_one_and_makes_them_two() -> None:
    """The key says more than the bodies: it holds for a turn that was received, too."""
    async with talking() as talk:

        async def name_of(key: str | None, **more: Any) -> str:
            headers = {} if key is None else {KEY: key}
            return str((await talk.post({**BODY, **more}, headers=headers)).json()["id"])

        found = [await name_of(key) for key in ("a", "a", "b", "a", None, None)]
        changed = await name_of("a", seed=7)
    assert found[0] == found[1] == found[3]
    assert len({*found, changed}) == 5
    assert len(talk.engine.asked) == 5


@pytest.mark.parametrize(("second", "asked"), [(BODY, 1), ({**BODY, "seed": 7}, 2)])
async def test_equal_requests_with_one_key_at_once_get_one_turn(second: dict[str, Any], asked: int) -> None:
    """A proxy may send a request twice; another body is a request of its own, and waits for nothing."""
    found = list[str]()
    async with talking(Scripted(held=anyio.Event())) as talk:

        async def ask(body: dict[str, Any]) -> None:
            found.append((await talk.post(body, headers={KEY: "a"})).json()["id"])

        async with anyio.create_task_group() as group:
            group.start_soon(ask, BODY)
            group.start_soon(ask, second)
            await talk.engine.runs(asked)
            await anyio.wait_all_tasks_blocked()
            talk.engine.go_on()
    assert len(set(found)) == len(talk.engine.asked) == asked


async def test_a_request_that_waits_for_one_with_its_key_gets_a_turn_if_that_one_is_given_up() -> None:
    async with talking(Scripted(held=anyio.Event())) as talk:

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                assert (await talk.post(BODY, headers={KEY: "a"})).status_code == 200
                assert not scope.cancel_called

        first = anyio.CancelScope()
        async with anyio.create_task_group() as group:
            group.start_soon(ask, first)
            await talk.engine.runs()
            group.start_soon(ask, anyio.CancelScope())
            await anyio.wait_all_tasks_blocked()
            first.cancel()
            talk.engine.go_on()
    assert (talk.engine.cancelled, len(talk.engine.asked)) == (1, 2)


@pytest.mark.parametrize("said", ["ok", "other"])
async def test_a_lost_turn_that_continued_a_message_is_the_answer_to_the_same_one(said: str) -> None:
    def going_on(first: Any) -> dict[str, Any]:
        return {"messages": [*HELLO, first], "continue_final_message": True, "max_tokens": 9}

    store, words = dropping(), iter(["ok", "other"])
    async with talking(Scripted(each=lambda _: next(words, "more")), store=store) as talk:
        ends = {one["content"]: one for one in [await talk.said(HELLO) for _ in range(2)]}
        first = await talk.chat(**going_on(ends["ok"]))
    store.before.clear()
    again = restarted(talk)
    answer = await again.chat(**going_on(ends[said]))
    assert (await again.session()).last_prompt is None  # no later one has the answer behind it
    assert (answer["id"] == first["id"]) is (said == "ok")
    assert len(again.engine.asked) == (0 if said == "ok" else 1)


@pytest.mark.parametrize(
    ("content", "handed_out"), [("He", True), ("H", False), ("He ", False), ("Hello", False), (None, False)]
)
async def test_a_lost_turn_whose_answer_was_begun_is_the_answer_to_the_same_beginning(
    content: str | None, handed_out: bool
) -> None:
    def begun(content: str | None) -> dict[str, Any]:
        last = [] if content is None else [{"role": "assistant", "content": content, "prefix": True}]
        return {"messages": [*HELLO, *last]}

    store = dropping()
    async with talking(Scripted(text="llo"), store=store) as talk:
        first = await talk.chat(**begun("He"))
    store.before.clear()
    again = restarted(talk)
    answer = await again.chat(**begun(content))
    assert (answer["id"] == first["id"], len(again.engine.asked)) == (handed_out, not handed_out)
    assert answer["choices"][0]["message"]["content"] == ("llo" if handed_out else "ok")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_continued_message_is_answered_again_with_what_was_new(streamed: bool) -> None:
    """Clients append the answer to the message that they sent; another turn has the same words."""
    words = iter(["one", " two", "one"])
    async with talking(Scripted(each=lambda _: next(words))) as talk:
        said = await talk.said(HELLO)
        body = {"messages": [*HELLO, said], "continue_final_message": True, "stream": streamed, "n": 1}
        first = await talk.post(body, headers={KEY: "a"})
        await talk.chat(HELLO)
        again = await talk.post(body, headers={KEY: "a"})
    assert " two" in first.text
    assert texts(again) == texts(first)
    assert len(talk.engine.asked) == 3


@pytest.mark.parametrize("name_of_reasoning", ["reasoning", "reasoning_content"])
async def test_reasoning_of_a_continued_message_is_answered_again_without_what_the_client_had(
    name_of_reasoning: str,
) -> None:
    async with talking() as talk:

        def thinks(thought: str) -> None:
            talk.engine.told = {"message": {"role": "assistant", "content": "ok", name_of_reasoning: thought}}

        thinks("I look")
        before = await talk.said(HELLO)
        for key, thought in (("a", " twice"), ("b", "")):
            thinks(thought)
            body = {"messages": [*HELLO, before], "continue_final_message": True}
            first, again = [(await talk.post(body, headers={KEY: key})).json() for _ in range(2)]
            assert first == again
            assert (first["choices"][0]["message"].get("reasoning") or "") == thought
            whole = before["reasoning"] + thought
            before = {**before, "content": f"{before['content']}ok", "reasoning": whole}
            before["reasoning_content"] = whole


async def test_a_lost_turn_with_a_key_is_only_for_that_key() -> None:
    talk = await left(BODY, headers={KEY: "a"})
    for headers, asked in (({}, 1), ({KEY: "b"}, 2), ({KEY: "a"}, 2)):
        await talk.post(BODY, headers=headers)
        assert len(talk.engine.asked) == asked


@pytest.mark.parametrize("n", [1, 2])
async def test_what_is_handed_out_and_lost_again_is_there_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    body, other = {**BODY, "n": n}, {**BODY, "n": n, "seed": 2}
    talk = await left(body, other)
    with monkeypatch.context() as patch:
        patch.setattr(ClientConnection, "start", failing(OSError()))
        assert (await talk.post(body)).status_code == 500
    nodes = await talk.nodes()
    assert [node.get("received") for node in nodes] == [False, False] * n
    found = (await talk.get("/samples", headers={"accept": "application/json"})).json()["samples"]
    assert {one["metadata"]["leaf"]["received"] for one in found} == {False}
    calls = (await talk.get("/calls")).content.splitlines()
    assert [orjson.loads(one)["call"]["metadata"] for one in calls] == [{"received": False}] * 2 * n
    assert "not known to be received" in (await talk.get("/view")).text
    assert (await talk.chat(**other))["id"] == nodes[n]["response_id"]
    assert (await talk.chat(**body))["id"] == nodes[0]["response_id"]
    calls = (await talk.get("/calls")).content.splitlines()
    assert [orjson.loads(one)["call"]["metadata"] for one in calls] == [{}] * 2 * n
    assert talk.engine.asked == []


async def test_a_response_that_was_stored_in_part_is_sampled_anew() -> None:
    """Its end cannot have been sent, and half an answer is none."""
    body = {**BODY, "n": 3}
    talk = await left(body)
    store = talk.gateway.sessions.store
    await store.take_back(talk.name, (await store.claim(talk.name)).epoch, 2)
    answer = await talk.chat(**body)
    assert len(talk.engine.asked) == 1
    assert [node["response_id"] for node in await talk.nodes()] == [answer["id"]] * 3


async def test_a_store_that_fails_to_note_a_turn_does_not_fail_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with talking(store=dropping()) as talk:
        for _ in range(2):
            await talk.chat(**BODY)
        assert [node.get("received") for node in await talk.nodes()] == [None, None]
    assert len(talk.engine.asked) == 2
    assert "did not note that a turn was received" in caplog.text


async def test_what_is_handed_out_is_received_then_and_counted() -> None:
    talk = await left({**BODY, "n": 2}, {**BODY, "seed": 2})
    assert [node.get("received", True) for node in await talk.nodes()] == [False, False, False]
    await talk.chat(**BODY, n=2)
    assert [node.get("received", True) for node in await talk.nodes()] == [True, True, False]
    assert "tito_recovered_total 2.0" in talk.metrics
    assert "tito_committed_total 0.0" in talk.metrics


@pytest.mark.parametrize("n", [1, 3])
async def test_all_turns_of_an_answer_are_received_in_the_store_too(n: int) -> None:
    """Of an answer that arrived nothing is handed out again, also not after a restart."""

    async def unreceived(talk: Talk) -> frozenset[int]:
        return frozenset((await talk.gateway.sessions.store.load(talk.name)).unreceived)

    async with talking() as talk:
        await talk.chat(**BODY, n=n)
        assert (await unreceived(talk), len(await talk.commits())) == (frozenset(), n)
    talk = await left({**BODY, "n": n})
    assert await unreceived(talk) == frozenset(range(n))
    await talk.chat(**BODY, n=n)
    assert await unreceived(talk) == frozenset()


async def test_who_goes_on_after_one_choice_has_received_all_of_that_answer_and_no_other() -> None:
    talk = await left({**BODY, "n": 2}, {**BODY, "messages": [user("Another one.")]})
    await talk.chat([*HELLO, {"role": "assistant", "content": "ok"}, user()])
    assert [node.get("received", True) for node in await talk.nodes()] == [True, True, False, True]
