"""A connection that was never made is tried again, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.abc
import attrs
import httpx2
import pytest

from tito_io.engines.reconnect import Reconnecting

pytestmark = pytest.mark.anyio


@attrs.define
class Server:
    """Answers after so many errors, and counts."""

    error: Callable[[], Exception]
    failures: int
    asked: list[bytes] = attrs.field(factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.content)
        if len(self.asked) <= self.failures:
            raise self.error()
        return httpx2.Response(200, json={})


def refused() -> Exception:
    return httpx2.ConnectError("refused")


def knocking(server: Server, **options: float) -> Reconnecting:
    inner = httpx2.MockTransport(server)
    return Reconnecting(inner=inner, pause=0.001, **options)  # type: ignore[arg-type]  # one is whole


@pytest.mark.parametrize("error", [httpx2.ConnectError, httpx2.ConnectTimeout])
@pytest.mark.parametrize("failures", [0, 1, 2])
async def test_a_connection_that_was_never_made_is_tried_again_and_counted(
    failures: int, error: type[httpx2.TransportError]
) -> None:
    server = Server(lambda: error("nobody opened"), failures)
    link = knocking(server, attempts=3)
    async with httpx2.AsyncClient(transport=link) as client:
        assert (await client.post("http://x", content=b"body")).status_code == 200
    assert server.asked == [b"body"] * (failures + 1)
    assert link.refused == failures


@pytest.mark.parametrize("attempts", [1, 2])
async def test_who_never_opens_is_given_up(attempts: int) -> None:
    server = Server(refused, 99)
    link = knocking(server, attempts=attempts)
    async with httpx2.AsyncClient(transport=link) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://x")
    assert (len(server.asked), link.refused) == (attempts, attempts)


@pytest.mark.parametrize(
    "error",
    [
        httpx2.PoolTimeout,
        httpx2.ReadError,
        httpx2.ReadTimeout,
        httpx2.RemoteProtocolError,
        httpx2.WriteError,
    ],
)
async def test_what_may_have_run_and_what_waits_for_oneself_is_not_tried_again(
    error: type[httpx2.TransportError],
) -> None:
    server = Server(lambda: error("broken"), 1)
    link = knocking(server, attempts=5)
    async with httpx2.AsyncClient(transport=link) as client:
        with pytest.raises(error):
            await client.get("http://x")
    assert (len(server.asked), link.refused) == (1, 0)


async def test_a_real_connection_that_nobody_makes_in_time_is_tried_again() -> None:
    """The TLS handshake of a server that says nothing is part of connecting."""
    knocks = 0

    async def silent(stream: anyio.abc.SocketStream) -> None:
        nonlocal knocks
        knocks += 1
        async with stream:
            await anyio.sleep(1)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610  # no database
        link = Reconnecting(attempts=2, pause=0.001)
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, silent)
            async with httpx2.AsyncClient(transport=link, timeout=0.2) as client:
                with pytest.raises(httpx2.ConnectTimeout):
                    await client.post(f"https://127.0.0.1:{port}", content=b"body")
            group.cancel_scope.cancel()
    assert (link.refused, knocks) == (2, 2)


async def test_an_answer_is_an_answer_whatever_its_status() -> None:
    link = Reconnecting(inner=httpx2.MockTransport(lambda _: httpx2.Response(503)))
    async with httpx2.AsyncClient(transport=link) as client:
        assert (await client.get("http://x")).status_code == 503
    assert link.refused == 0


async def test_a_real_socket_that_nobody_listens_at_refuses() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610  # no database
    link = Reconnecting(attempts=2, pause=0.001)
    async with httpx2.AsyncClient(transport=link) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(f"http://127.0.0.1:{port}")
    assert link.refused == 2


@pytest.mark.parametrize("options", [{"attempts": 0}, {"pause": -1}])
def test_at_least_one_attempt_is_made(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Reconnecting(**options)  # type: ignore[arg-type]  # whole numbers, as the parameters say
