"""Sessions are opened and always deleted, and agents talk in them with the client that they really use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from openai import AsyncOpenAI

from tests.io.engines.miles.miles_server import Fake, Says
from tests.io.engines.miles.test_session import HELLO, continued
from tito_core import Message
from tito_io.engines.miles import MilesRouter, SamplesRefusedError, request_kwargs, router
from tito_io.engines.protocol import EngineError, RequestError, UnreachableError

pytestmark = pytest.mark.anyio


def routed(fake: Fake) -> MilesRouter:
    return MilesRouter("http://miles:9000/v1", transport=fake.transport)


async def test_a_server_says_how_it_is() -> None:
    async with routed(Fake()) as server:
        health = await server.health()
    assert (health.status, health.instance_id) == ("ok", "i" * 32)


# Whatever happens, no session is left.


async def test_a_session_lasts_as_long_as_its_block() -> None:
    fake = Fake()
    async with routed(fake) as server:
        async with server.session() as session:
            assert list(fake.sessions) == [session.id]
            assert session.url == f"http://miles:9000/sessions/{session.id}"
        assert session.deleted
        assert (fake.sessions, server.undeleted) == ({}, {})


async def test_an_error_deletes_the_session_and_stays_the_error() -> None:
    fake = Fake()
    async with routed(fake) as server:
        with pytest.raises(KeyError, match="mine"):
            async with server.session():
                raise KeyError("mine")
    assert fake.sessions == {}


async def test_a_cancellation_deletes_the_session() -> None:
    fake = Fake(held=anyio.Event())
    async with routed(fake) as server:
        with anyio.move_on_after(0.05) as scope:
            async with server.session() as session:
                await session.chat({"messages": HELLO})
        assert scope.cancelled_caught
        assert (fake.sessions, server.undeleted) == ({}, {})


async def test_a_cancellation_while_the_session_is_opened_deletes_it() -> None:
    """The server has made the session before its answer is there."""
    fake = Fake()
    scope = anyio.CancelScope()

    async def slow(request: httpx2.Request) -> httpx2.Response:
        response = await fake.transport.handle_async_request(request)
        body = await response.aread()
        if request.url.path == "/sessions":
            assert fake.sessions
            scope.cancel()
            await anyio.sleep(0.01)
        return httpx2.Response(response.status_code, content=body)

    async with MilesRouter("http://miles", transport=httpx2.MockTransport(slow)) as server:
        with scope:
            async with server.session():
                pytest.fail("cancelled before")
    assert scope.cancelled_caught
    assert fake.sessions == {}


async def test_a_server_that_opens_no_session_in_time_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "OPEN_SECONDS", 0.05)

    async def never(_: httpx2.Request) -> httpx2.Response:
        await anyio.sleep_forever()
        raise AssertionError

    async with MilesRouter("http://miles", transport=httpx2.MockTransport(never)) as server:
        with pytest.raises(UnreachableError, match="no session within"):
            async with server.session():
                pytest.fail("there is none")


async def test_a_server_that_does_not_delete_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "DELETE_SECONDS", 0.05)
    fake = Fake(stuck=True)
    async with routed(fake) as server:
        with anyio.fail_after(5):
            async with server.session() as session:
                pass
        assert server.undeleted == {session.id: "no answer within 0.05 s"}
        assert not session.deleted


async def test_a_session_that_could_not_be_deleted_is_told_and_masks_no_error() -> None:
    def gone(request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            raise httpx2.ReadError("broken")
        return httpx2.Response(200, json={"session_id": "s"})

    async with MilesRouter("http://miles", transport=httpx2.MockTransport(gone)) as server:
        with pytest.raises(ValueError, match="mine"):
            async with server.session():
                raise ValueError("mine")
        assert "connection broke" in server.undeleted["s"]


async def test_a_server_that_refuses_to_open_a_session() -> None:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(405, json={"detail": "Method Not Allowed"}))
    async with MilesRouter("http://miles", transport=transport) as server:
        with pytest.raises(RequestError, match="answered 405"):
            async with server.session():
                pytest.fail("there is none")


async def test_a_session_that_is_still_used_elsewhere_is_left() -> None:
    fake = Fake()
    async with routed(fake) as server:
        async with server.session() as session:
            first = await session.chat({"messages": HELLO})
            await session.samples()
            async with httpx2.AsyncClient(transport=fake.transport) as stray:
                await stray.post(f"{session.url}/v1/chat/completions", json={"messages": continued(first)})
        assert "used after its samples were taken" in server.undeleted[session.id]
    assert list(fake.sessions) == [session.id]  # what it sampled is still to be had


# An agent, as Miles' documents write one.


@asynccontextmanager
async def served(fake: Fake) -> AsyncIterator[str]:
    """Serve over a real socket of this machine."""
    config = uvicorn.Config(
        fake.app, host="127.0.0.1", port=0, log_level="critical", lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        while not server.started:  # noqa: ASYNC110  # uvicorn tells nobody
            await anyio.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True


async def run_agent(
    base_url: str, prompt: Sequence[Message], request_kwargs: dict[str, Any], metadata: dict[str, Any]
) -> dict[str, Any]:
    """Talk for two turns; the second one's prompt restates the first reply as the client's object."""
    messages: list[Any] = list(prompt)
    async with AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0) as client:
        for text in ("more", "thanks"):
            reply = await client.chat.completions.create(
                model="default", messages=messages, extra_body=request_kwargs
            )
            message = reply.choices[0].message.model_dump(exclude_none=True)
            messages = [*messages, message, {"role": "user", "content": text}]
    return {"reward": float(metadata["bonus"]), "seen": metadata["max_seq_len"]}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
@pytest.mark.parametrize("later", [False, True])
async def test_an_agent_talks_with_its_own_client_and_the_samples_have_every_id(later: bool) -> None:
    fake = Fake(later=later, tree=later, script=[Says(text="one"), Says(text="two", count=5)])
    sampling = {"max_new_tokens": 64, "temperature": 1.0, "top_k": -1, "top_p": None}
    async with served(fake) as url, MilesRouter(url) as server:
        rolled = await server.run(run_agent, HELLO, sampling, metadata={"bonus": 2}, max_seq_len=900)
    assert rolled.error is None
    assert rolled.returned == {"reward": 2.0, "seen": 900}
    (sample,) = rolled.samples.samples
    assert [one for one in sample.tokens if one in fake.sampled] == fake.sampled
    for body in fake.bodies("completions"):
        assert (body["max_tokens"], body["temperature"], body["top_k"]) == (64, 1.0, -1)
        assert not {"max_new_tokens", "top_p", "logprobs", "return_meta_info"} & body.keys()
    paths = [(method, path.rsplit("/", 1)[-1]) for method, path, _ in fake.asked]
    assert paths[-2:] == [("POST", "samples"), ("DELETE", sample_session(fake))]
    assert fake.sessions == {}


def sample_session(fake: Fake) -> str:
    """Return the name of the session that was asked for samples."""
    return next(path.split("/")[2] for _, path, _ in fake.asked if path.endswith("/samples"))


async def test_what_an_agent_had_sampled_before_it_failed_is_kept() -> None:
    fake = Fake()

    async def fails(*, base_url: str, **_: Any) -> None:
        async with httpx2.AsyncClient(transport=fake.transport) as client:
            await client.post(f"{base_url}/v1/chat/completions", json={"messages": HELLO})
        raise ZeroDivisionError("mine")

    async with routed(fake) as server:
        rolled = await server.run(fails, HELLO)
    assert isinstance(rolled.error, ZeroDivisionError)
    assert rolled.returned is None
    assert rolled.samples.samples[0].tokens[-3:] == tuple(fake.sampled)
    assert fake.sessions == {}


async def test_an_agent_that_asked_nothing_has_no_samples() -> None:
    async def idle(**_: Any) -> None:
        return None

    async with routed(Fake()) as server:
        assert (await server.run(idle, HELLO)).samples.empty_reason == "no_records"


async def test_samples_that_cannot_be_made_leave_no_session() -> None:
    async def idle(**_: Any) -> None:
        return None

    fake = Fake(unassembled="no")
    async with routed(fake) as server:
        with pytest.raises(SamplesRefusedError):
            await server.run(idle, HELLO)
    assert fake.sessions == {}


async def test_a_cancelled_agent_leaves_no_session() -> None:
    async def sleeps(**_: Any) -> None:
        await anyio.sleep_forever()

    fake = Fake()
    async with routed(fake) as server:
        with anyio.move_on_after(0.05) as scope:
            await server.run(sleeps, HELLO)
    assert scope.cancelled_caught
    assert fake.sessions == {}
    assert fake.bodies("/samples") == []


async def test_a_session_is_told_what_the_requests_will_sample_with() -> None:
    fake = Fake()

    async def idle(**given: Any) -> None:
        assert given["request_kwargs"] == {"temperature": 0.7, "max_tokens": 5}
        assert given["metadata"] == {"session_server_id": "miles:9000"}

    async with routed(fake) as server:
        rolled = await server.run(idle, HELLO, {"temperature": 0.7, "max_new_tokens": 5}, evaluation=True)
    assert rolled.error is None
    assert fake.bodies("/sessions") == [{"temperature": 0.7, "evaluation": True}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_new_tokens": 1}, {"max_tokens": 1}),
        ({"max_new_tokens": 1, "max_tokens": 2}, {"max_tokens": 2}),
        ({"max_new_tokens": 1, "max_tokens": None}, {"max_tokens": 1}),
        ({"max_new_tokens": None}, {}),
        ({"min_new_tokens": 3, "sampling_seed": 4}, {"min_tokens": 3, "seed": 4}),
        ({"model": "m", "messages": [], "top_p": None, "stop": ["x"]}, {"stop": ["x"]}),
    ],
)
def test_sampling_parameters_have_the_chat_api_s_names(given: dict[str, Any], said: dict[str, Any]) -> None:
    assert request_kwargs(given) == said


def test_every_error_of_a_session_is_an_engine_s() -> None:
    assert issubclass(SamplesRefusedError, EngineError)
