"""What a server is asked once is asked by one turn, while others that need it wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import anyio
import anyio.lowlevel
import attrs
import httpx2
import pytest

from tests.io.engines.sglang.sglang_server import Mock, generated
from tito_io.embedded import app
from tito_io.engines.http_engine import HttpEngine
from tito_io.engines.one_asks import one_asks
from tito_io.engines.protocol import Rendering, SampleRequest, Sampling
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM

pytestmark = pytest.mark.anyio

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
TOOLED = Rendering(tools=(TOOL,))


@attrs.define(eq=False)
class Server:
    """A server that answers once it is let, and fails as often as it is to."""

    failures: int = 0
    open: anyio.Event = attrs.field(factory=anyio.Event)
    asked: list[str] = attrs.field(factory=list)
    known: dict[str, int] = attrs.field(factory=dict)

    @one_asks
    async def length(self, name: str) -> int:
        if name not in self.known:
            self.asked.append(name)
            await self.open.wait()
            if len(self.asked) <= self.failures:
                raise OSError(len(self.asked))
            self.known[name] = len(name)
        return self.known[name]


async def test_the_others_wait_and_find_the_answer() -> None:
    server, found = Server(), list[int]()

    async def turn() -> None:
        found.append(await server.length("four"))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(turn)
        await anyio.wait_all_tasks_blocked()
        assert (server.asked, found) == (["four"], [])
        server.open.set()
    assert (server.asked, found) == (["four"], [4] * 5)


async def test_other_questions_and_other_servers_do_not_wait() -> None:
    one, other = Server(), Server()
    async with anyio.create_task_group() as group:
        for server, name in ((one, "a"), (one, "b"), (other, "a"), (one, "a")):
            group.start_soon(server.length, name)
        await anyio.wait_all_tasks_blocked()
        assert (sorted(one.asked), other.asked) == (["a", "b"], ["a"])
        one.open.set()
        other.open.set()


async def test_each_turn_has_an_error_of_its_own() -> None:
    """Turns write what they received into their errors: a shared one would hand it to another session."""
    server, errors = Server(failures=3), list[OSError]()

    async def turn() -> None:
        try:
            await server.length("a")
        except OSError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(turn)
        await anyio.wait_all_tasks_blocked()
        server.open.set()
    assert len(set(map(id, errors))) == len(server.asked) == 3
    assert await server.length("a") == 1


async def test_the_others_do_not_wait_for_one_that_was_cancelled() -> None:
    server = Server()
    first = anyio.CancelScope()

    async def cancelled() -> None:
        with first:
            await server.length("a")

    async with anyio.create_task_group() as group:
        group.start_soon(cancelled)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(server.length, "a")
        await anyio.wait_all_tasks_blocked()
        assert server.asked == ["a"]
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        assert server.asked == ["a", "a"]
        server.open.set()


@attrs.define
class Counting(httpx2.AsyncBaseTransport):
    """A network that counts requests by their paths."""

    inner: httpx2.AsyncBaseTransport
    paths: Counter[str] = attrs.field(factory=Counter)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.paths[request.url.path] += 1
        await anyio.lowlevel.checkpoint()
        return await self.inner.handle_async_request(request)


def vllm() -> tuple[VLLM, Counting]:
    network = Counting(httpx2.ASGITransport(app()))
    return VLLM("http://embedded", transport=network), network


def sglang() -> tuple[SGLang, Counting]:
    network = Counting(httpx2.MockTransport(Mock({"/generate": generated(prompt=(4, 5, 6))})))
    return SGLang("http://s", transport=network), network


@pytest.mark.parametrize(("server", "samples"), [(vllm, "/v1/completions"), (sglang, "/generate")])
async def test_many_conversations_that_begin_at_once_ask_no_more_than_one(
    server: Callable[[], tuple[HttpEngine, Counting]], samples: str
) -> None:
    found = list[Counter[str]]()
    for turns in (1, 20):
        engine, network = server()
        async with engine, anyio.create_task_group() as group:
            for _ in range(turns):
                group.start_soon(
                    engine.sample,
                    SampleRequest(ids=[4, 5, 6], sampling=Sampling(max_tokens=3), rendering=TOOLED),
                )
        found.append(network.paths)
    assert found[0]["/tokenize"] > 3
    assert found[1] - found[0] == {samples: 19}
