"""A body of few bytes that stands for many values, members or bytes does not stop a gateway."""

from __future__ import annotations

import gzip
import threading
import time
import tracemalloc
from itertools import product
from typing import Any

import anyio
import attrs
import httpx2
import orjson
import pytest

from tests.io.serve.gateway import HELLO, Scripted, client, scripted_gateway, user
from tests.io.serve.gateway_process import started
from tito_io.dialects import Anthropic, Chat, Google, Responses
from tito_io.serve import body, gateway
from tito_io.serve.body import MEMBERS, MESSAGES, SMALL, decoded, parsed
from tito_io.serve.gateway import GatewayOptions
from tito_io.serve.refusals import GatewayLimits, RequestRefused

pytestmark = pytest.mark.anyio
MIB = 1 << 20
LIMITS = GatewayLimits()
FEW = attrs.evolve(LIMITS, containers=10, scalars=20)
EMPTY = gzip.compress(b"", mtime=0)
ATTACKS: dict[str, tuple[bytes, str, str]] = {
    "lists": (gzip.compress(b"[" + b"[]," * (21 * MIB)), "gzip", "raise --max-containers"),
    "objects in lists": (b"[" + b"[[{" * (20 * MIB), "", "raise --max-containers"),
    "numbers": (b"[" + b"1," * (30 * MIB), "", "raise --max-scalars"),
    "keys": (b"{" + b'"a":1,' * (10 * MIB), "", "raise --max-scalars"),
    "quotation marks": (b'"' * (60 * MIB) + b"," * (LIMITS.scalars + 1), "", "raise --max-scalars"),
    "empty gzip members": (EMPTY * (3 * MIB), "gzip", f"more than {MEMBERS} gzip members"),
    "zeros after a gzip member": (EMPTY + bytes(60 * MIB), "gzip", "is not valid gzip"),
}
PADDING = b" " * SMALL
TEXT = {"type": "text", "text": "x"}
THREE: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": ("/v1/chat/completions", {"messages": [user()] * 3}, "param"),
    "chat of parts": ("/v1/chat/completions", {"messages": [user([TEXT] * 3)]}, "param"),
    "anthropic": ("/v1/messages", {"messages": [user([TEXT]), user([TEXT] * 2)]}, "type"),
    "responses": ("/v1/responses", {"input": [user(), user(), user()]}, "param"),
    "google": (
        "/v1beta/models/m:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "x"}] * 3}]},
        "status",
    ),
    "count of anthropic": ("/v1/messages/count_tokens", {"messages": [user()] * 3}, "type"),
    "count of google": (
        "/v1beta/models/m:countTokens",
        {"generateContentRequest": {"contents": [{"parts": [{"text": "x"}] * 3}]}},
        "status",
    ),
}
"""Requests of three messages or parts by their API, and a field of its errors."""


@pytest.mark.whole
@pytest.mark.parametrize("name", ATTACKS)
def test_few_bytes_take_little_time_and_memory(name: str) -> None:
    """Each took 14 to 25 seconds, or 2 GB."""
    data, coding, words = ATTACKS[name]
    begun = time.thread_time()
    tracemalloc.start()
    with pytest.raises(RequestRefused, match=words):
        parsed(decoded(data, coding, LIMITS.body_bytes), LIMITS)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200 * MIB
    assert time.thread_time() - begun < 5


@pytest.mark.whole
def test_a_gateway_answers_others_while_it_refuses_such_a_body() -> None:
    data, coding, words = ATTACKS["lists"]
    with started("--store", "memory") as process, httpx2.Client(base_url=process.url, timeout=60) as http:
        headers = {"content-encoding": coding, "x-tito-session": "a"}
        answer = http.post("/v1/chat/completions", content=data, headers=headers)
        assert (answer.status_code, words in answer.text) == (429, True)
        assert http.get("/health").status_code == 200


@pytest.mark.parametrize(("name", "coding"), [("parsed", ""), ("decoded", "gzip")])
async def test_other_requests_are_answered_while_a_body_is_read(
    name: str, coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body is read only after a later request was answered."""
    answered, read = threading.Event(), getattr(gateway, name)

    def waiting(*given: Any) -> Any:
        assert answered.wait(10)
        return read(*given)

    monkeypatch.setattr(gateway, name, waiting)
    served = scripted_gateway(Scripted())
    async with client(served) as http, anyio.create_task_group() as group:
        text = orjson.dumps({"messages": HELLO, "max_tokens": 3}) + PADDING
        statuses: list[int] = []

        async def post() -> None:
            headers = {"x-tito-session": "a", "content-encoding": coding or "identity"}
            sent = gzip.compress(text) if coding else text
            answer = await http.post("/v1/chat/completions", content=sent, headers=headers)
            statuses.append(answer.status_code)

        group.start_soon(post)
        with anyio.fail_after(10):
            while not served.readers.borrowed_tokens:  # noqa: ASYNC110  # a limiter has no event for it
                await anyio.sleep(0.001)
        assert (await http.get("/health")).status_code == 200
        assert statuses == []
        answered.set()
    assert statuses == [200]


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ([[]] * 9, [[]] * 10),
        ([{}] * 9, [{}] * 10),
        ([0] * 21, [0] * 22),
        ({str(key): 0 for key in range(10)}, {str(key): [0, 1] for key in range(10)}),
        (["[{,:" * 99, '"' * 99, "\\" * 99, '\\"[' * 99], [["[[[["] * 9, *[[]] * 10]),
    ],
)
def test_a_body_may_have_just_so_many_values(value: Any, more: Any) -> None:
    """What stands in strings is not counted."""
    assert parsed(orjson.dumps(value) + PADDING, FEW) == value
    with pytest.raises(RequestRefused) as caught:
        parsed(orjson.dumps(more) + PADDING, FEW)
    assert caught.value.status == 429


@pytest.mark.parametrize("piece", range(1, 12))
def test_values_are_counted_across_pieces(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "PIECE", piece)
    monkeypatch.setattr(body, "SMALL", 0)
    value = {'a"[': ["\\", '\\"', "{,", '"', {"b\\\\": [1.5, None, "x"]}]}
    assert parsed(orjson.dumps(value), attrs.evolve(LIMITS, containers=4, scalars=8)) == value
    for fewer in ({"containers": 3, "scalars": 8}, {"containers": 4, "scalars": 7}):
        with pytest.raises(RequestRefused):
            parsed(orjson.dumps(value), attrs.evolve(LIMITS, **fewer))


def test_a_gzip_body_may_have_just_so_many_members() -> None:
    member = gzip.compress(b"x")
    assert decoded(member * MEMBERS, "gzip", 1000) == b"x" * MEMBERS
    with pytest.raises(RequestRefused, match="compress it as one"):
        decoded(member * (MEMBERS + 1), "gzip", 1000)


def messages_gateway(most: int) -> tuple[Scripted, gateway.Gateway]:
    """Return a gateway that takes so many messages, and its engine."""
    engine = Scripted()
    limits = attrs.evolve(LIMITS, messages=most)
    return engine, scripted_gateway(engine, choices=GatewayOptions(limits=limits))


@pytest.mark.parametrize("name", THREE)
async def test_a_request_of_too_many_messages_is_refused_before_they_are_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked, field = THREE[name]
    _, served = messages_gateway(2)
    for dialect, read in product((Chat, Anthropic, Responses, Google), ("parse", "parse_count")):
        monkeypatch.setattr(dialect, read, None, raising=False)
    async with client(served) as http:
        answer = await http.post(path, json={**asked, "max_tokens": 3}, headers={"x-tito-session": "a"})
    assert answer.status_code == 429
    assert ": 3, and at most 2; raise --max-messages" in answer.json()["error"]["message"]
    assert answer.json()["error"][field] in (*MESSAGES, "rate_limit_error", "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("name", THREE)
async def test_a_request_of_just_so_many_messages_is_answered(name: str) -> None:
    path, asked, _ = THREE[name]
    _, served = messages_gateway(3)
    async with client(served) as http:
        answer = await http.post(path, json=asked, headers={"x-tito-session": "a"})
    assert "--max-messages" not in answer.text


async def test_a_stored_conversation_that_is_continued_has_just_so_many_messages_too() -> None:
    engine, served = messages_gateway(4)
    async with client(served) as http:
        asked: dict[str, Any] = {"input": "Where is the bridge?"}
        statuses = []
        for _ in range(3):
            answer = await http.post("/v1/responses", json=asked, headers={"x-tito-session": "a"})
            statuses.append(answer.status_code)
            asked = {"input": "And now?", "previous_response_id": answer.json().get("id")}
    assert statuses == [200, 200, 429]
    assert "messages in this conversation: 5, and at most 4; raise --max-messages" in answer.text
    assert len(engine.asked) == 2
