"""A client that is still sending when its request is refused reads the refusal."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.io.serve.gateway_process import started
from tito_io.serve.unread import DiscardUnread

pytestmark = pytest.mark.anyio
MIB = 1 << 20
HTTP: Scope = {"type": "http", "headers": []}


def answered(port: int, head: str, length: int) -> tuple[str, Any]:
    """Send a whole body of spaces before anything is read; return status line and JSON of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        wire.sendall(f"{head}\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n".encode())
        for _ in range(length // MIB):
            wire.sendall(b" " * MIB)
        got = b"".join(iter(lambda: wire.recv(65_536), b""))
    first, _, body = got.partition(b"\r\n\r\n")
    return first.decode().splitlines()[0], json.loads(body)


@pytest.mark.whole
def test_a_body_that_is_too_long_is_read_before_the_answer() -> None:
    with started("--store", "memory", "--max-body", "1") as gateway:
        port = int(gateway.url.rpartition(":")[2])
        for length in (2 * MIB, 40 * MIB):
            closing = "POST /v1/chat/completions HTTP/1.1\r\nconnection: close\r\nx-tito-session: a"
            status, body = answered(port, closing, length)
            assert status.startswith("HTTP/1.1 413 ")
            assert "raise --max-body" in body["error"]["message"]
        status, body = answered(port, "POST /nothing HTTP/1.1\r\nconnection: close", 40 * MIB)
        assert status.startswith("HTTP/1.1 404 ")


def endless() -> Iterator[Message]:
    while True:
        yield {"type": "http.request", "body": b"1234", "more_body": True}


async def run(parts: Iterator[Message], status: int, read: int = 0, **limits: Any) -> list[int]:
    """Return the status that was sent, and how many parts were received before it."""
    received, sent = [0], []

    async def receive() -> Message:
        received[0] += 1
        await anyio.lowlevel.checkpoint()
        return next(parts)

    async def send(message: Message) -> None:
        sent.append(message["status"])

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        for _part in range(read):
            await receive()
        await send({"type": "http.response.start", "status": status, "headers": []})

    await DiscardUnread(app, **limits)(HTTP, receive, send)
    return [*sent, *received]


async def test_what_is_left_is_discarded_before_an_error_alone() -> None:
    parts: list[Message] = [
        *([{"type": "http.request", "body": b"1", "more_body": True}] * 3),
        {"type": "http.request"},
    ]
    assert await run(iter(parts), 400) == [400, 4]
    assert await run(iter(parts), 400, read=4) == [400, 4]  # a further message is the client's leaving
    assert await run(iter(parts), 200, read=1) == [200, 1]
    assert await run(iter([parts[0], {"type": "http.disconnect"}]), 413) == [413, 2]


async def test_no_client_keeps_a_request_for_ever() -> None:
    with anyio.fail_after(5):
        assert await run(endless(), 413, most=10) == [413, 3]
        assert await run(endless(), 413, most=9) == [413, 3]
        assert await run(endless(), 413, most=8) == [413, 2]
        assert (await run(endless(), 413, most=1 << 60, seconds=0.05))[0] == 413

    async def never() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413})

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    with anyio.fail_after(5):
        await DiscardUnread(app, seconds=0.01)(HTTP, never, send)
    assert len(sent) == 1


async def test_a_client_that_waits_with_its_body_is_not_asked_for_it() -> None:
    asking: Scope = {"type": "http", "headers": [(b"expect", b"100-continue")]}
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body was asked for")

    async def send(message: Message) -> None:
        sent.append(message)

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413})

    await DiscardUnread(app)(asking, receive, send)
    assert len(sent) == 1
