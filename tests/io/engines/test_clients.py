"""Clients of a server: few requests each, and none more than are needed."""

from __future__ import annotations

from contextlib import ExitStack

import anyio
import httpx2
import pytest

from tito_io.engines.clients import AT_ONCE, Clients
from tito_io.engines.wire import Wire

pytestmark = pytest.mark.anyio


async def test_a_client_has_few_requests_at_once_and_is_used_again() -> None:
    made: list[httpx2.AsyncClient] = []

    def make() -> httpx2.AsyncClient:
        made.append(httpx2.AsyncClient())
        return made[-1]

    clients = Clients(make)
    with ExitStack() as stack:
        used = [stack.enter_context(clients.one()) for _ in range(2 * AT_ONCE + 1)]
    assert [used.count(client) for client in made] == [AT_ONCE, AT_ONCE, 1]
    with clients.one() as again:
        assert again is made[0]
    await clients.aclose()
    assert all(client.is_closed for client in made)


@pytest.mark.parametrize("streamed", [False, True])
async def test_turns_at_once_share_clients_until_the_end_of_their_answers(*, streamed: bool) -> None:
    """A stream has its place until it was read: else its client would soon have many connections."""
    waiting, go = anyio.Semaphore(0), anyio.Event()

    async def answer(_: httpx2.Request) -> httpx2.Response:
        waiting.release()
        await go.wait()
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, content=b"data: {}\n\ndata: [DONE]\n\n"
        )

    wire, made = Wire.to("http://mock"), list[httpx2.AsyncClient]()

    def make() -> httpx2.AsyncClient:
        made.append(httpx2.AsyncClient(transport=httpx2.MockTransport(answer)))
        return made[-1]

    wire.clients = Clients(make)

    async def ask() -> None:
        if streamed:
            assert [event async for event in wire.stream("/x", {})] == [{}]
        else:
            await wire.exchange("POST", "/x", b"{}")

    for _ in range(2):
        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE + 1):
                group.start_soon(ask)
            for _ in range(AT_ONCE + 1):
                await waiting.acquire()
            go.set()
        go = anyio.Event()
    assert len(made) == 2
