"""What goes wrong on the way to a server, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.io.vllm_server import PROMPT
from tito_core import TemplateRefused
from tito_io.engines.protocol import EngineError, InvalidReplyError, Rendering, Sampling, UnreachableError
from tito_io.engines.vllm import VLLM

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
        await check(base_url, UnreachableError, "no answer in time; allow more with `timeout`", seconds=0.05)


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
