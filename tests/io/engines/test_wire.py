"""What goes wrong on the way to a server, over real sockets."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.io.engines.vllm.vllm_server import PROMPT
from tito_core import InputError, TemplateRefused
from tito_io.engines.protocol import (
    EngineError,
    InvalidReplyError,
    Rendering,
    Sampling,
    TimedOutError,
    UnreachableError,
)
from tito_io.engines.vllm import VLLM
from tito_io.engines.wire import Wire

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

Answering = Callable[[SocketStream], Awaitable[None]]


@asynccontextmanager
async def server(answering: Answering) -> AsyncIterator[str]:
    """Run a server that takes a request and does something with the connection; its address."""

    async def handle(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await answering(stream)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610  # a socket's, not a query's
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, handle)
            yield f"http://127.0.0.1:{port}/v1"
            tasks.cancel_scope.cancel()


def sending(content: bytes) -> Answering:
    """Return a server that sends this and hangs up."""

    async def send(stream: SocketStream) -> None:
        if content:
            await stream.send(content)

    return send


async def silent(_: SocketStream) -> None:
    """Say nothing, and keep the connection."""
    await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("localhost:8000", "'localhost:8000' is not an http address"),
        ("http://", "'http://' is not an http address"),
        ("ftp://ann:secret@host/x?key=secret", "'host/x' is not an http address"),
        ("http://ann:secret@host:99999", "'host:99999' has a port that is not one of 1 to 65535"),
        (8000, "a value of the type int is no address"),
        (b"http://ann:secret@host", "a value of the type bytes is no address"),
    ],
)
def test_an_address_that_is_none_is_shown_without_secrets(address: Any, why: str) -> None:
    with pytest.raises(InputError) as caught:
        VLLM(address)
    assert str(caught.value) == f"base_url: {why}; give http://HOST:PORT or https://HOST"


async def check(base_url: str, kind: type[EngineError], told: str, seconds: float = 10) -> None:
    """Demand this error of each thing that can be asked."""
    engine = VLLM(base_url, model="m", timeout=seconds)
    for asking in (
        engine.render(HELLO, Rendering(), add_generation_prompt=True),
        engine.from_messages(HELLO, Rendering(), Sampling()),
        engine.from_ids(PROMPT, Sampling(max_tokens=3)),
        engine.version(),
    ):
        with pytest.raises(kind, match=told) as caught:
            await asking
        assert type(caught.value) is kind
        assert not isinstance(caught.value, TemplateRefused)
        assert base_url.removesuffix("/v1") in str(caught.value)
    await engine.aclose()


@pytest.mark.parametrize(
    "content",
    [b"", HEAD, HEAD + b"Content-Length: 50\r\n\r\n{", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"],
    ids=["before the answer", "in its head", "in its body", "in a chunk"],
)
async def test_a_server_that_hangs_up_is_unreachable(content: bytes) -> None:
    async with server(sending(content)) as base_url:
        await check(base_url, UnreachableError, "the connection broke before the answer was whole")


async def test_a_server_that_says_nothing_is_unreachable() -> None:
    async with server(silent) as base_url:
        await check(base_url, TimedOutError, "no answer in time; allow more with `timeout`", seconds=0.05)


async def test_what_does_not_speak_http_is_unreachable() -> None:
    async with server(sending(b"220 mail.example ESMTP\r\n")) as base_url:
        await check(base_url, UnreachableError, "the connection broke")


async def test_nobody_there_is_unreachable() -> None:
    async with server(silent) as base_url:
        pass
    await check(base_url, UnreachableError, "nothing answers; start the engine, or correct the base_url")


async def test_a_name_that_nobody_has_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match=r"http://nobody\.invalid"):
        await VLLM("http://nobody.invalid").version()


async def test_an_answer_whose_compression_is_broken_is_refused() -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-encoding": "gzip"}, content=b"abcd")

    with pytest.raises(InvalidReplyError, match="compression is broken"):
        await VLLM("http://mock", transport=httpx2.MockTransport(answer)).version()


async def test_an_address_keeps_its_credentials_out_of_errors() -> None:
    async with server(sending(b"")) as base_url:
        engine = VLLM(base_url.replace("//", "//me:secret@"))
        with pytest.raises(UnreachableError) as caught:
            await engine.version()
    assert "secret" not in str(caught.value)
    assert base_url.removesuffix("/v1") in str(caught.value)


async def test_what_is_cancelled_raises_no_error_of_ours() -> None:
    async with server(silent) as base_url:
        with anyio.move_on_after(0.05) as scope:
            await VLLM(base_url).version()
    assert scope.cancelled_caught


# Streams.

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
EVENT = b'data: {"a": 1}\n\n'


async def events(base_url: str, count: int | None = None, seconds: float = 10) -> list[object]:
    """Return the first events of a stream, or all."""
    wire, found = Wire.to(base_url, timeout=seconds), list[object]()
    async with aclosing(wire.stream("/x", {})) as stream:
        async for event in stream:
            found.append(event)
            if len(found) == count:
                break
    await wire.aclose()
    return found


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (STREAM + b"\r\n" + EVENT, "before its end mark|the connection broke"),
        (
            STREAM + b"Transfer-Encoding: chunked\r\n\r\n10\r\n" + EVENT + b"\r\n10\r\nda",
            "the connection broke",
        ),
        (STREAM + b"Content-Length: 99\r\n\r\n" + EVENT, "the connection broke"),
    ],
    ids=["between events", "in a chunk", "in its length"],
)
async def test_a_stream_that_breaks_is_unreachable(content: bytes, told: str) -> None:
    async with server(sending(content)) as base_url:
        with pytest.raises(UnreachableError, match=told):
            await events(base_url)


async def begun(stream: SocketStream) -> None:
    """Send an event, and nothing more."""
    await stream.send(STREAM + b"\r\n" + EVENT)
    await anyio.sleep_forever()


async def test_a_stream_that_falls_silent_is_unreachable() -> None:
    async with server(begun) as base_url:
        with pytest.raises(UnreachableError, match="no answer in time"):
            await events(base_url, seconds=0.1)


@pytest.mark.whole
async def test_a_stream_that_is_left_closes_its_connection() -> None:
    left = anyio.Event()

    async def endless(stream: SocketStream) -> None:
        await stream.send(STREAM + b"\r\n" + EVENT)
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await stream.receive()  # the rest of the request, perhaps
        left.set()

    async with server(endless) as base_url:
        assert await events(base_url, count=1) == [{"a": 1}]
        with anyio.fail_after(5):
            await left.wait()
    gc.collect()  # whatever was left in its middle would complain here


@pytest.mark.whole
async def test_the_end_mark_ends_a_stream_that_stays_open() -> None:
    async def ended(stream: SocketStream) -> None:
        await stream.send(STREAM + b"\r\n" + EVENT + b"data: [DONE]\n\n")
        await anyio.sleep_forever()

    async with server(ended) as base_url:
        with anyio.fail_after(5):
            assert await events(base_url) == [{"a": 1}]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio the library keeps none after any stream
async def test_a_connection_is_used_again_after_a_stream() -> None:
    connections: list[SocketStream] = []
    whole = EVENT + b"data: [DONE]\n\n"

    async def answering(stream: SocketStream) -> None:
        connections.append(stream)
        for turn in range(2):
            await stream.send(STREAM + f"Content-Length: {len(whole)}\r\n\r\n".encode() + whole)
            if not turn:
                await stream.receive()

    async with server(answering) as base_url:
        wire = Wire.to(base_url)
        for _ in range(2):
            async with aclosing(wire.stream("/x", {})) as stream:
                assert [event async for event in stream] == [{"a": 1}]
        await wire.aclose()
    assert len(connections) == 1
