"""A session's limits at their bounds, and what is left of it when turns are taken back."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest

from tests.io.serve.gateway import HELLO, Scripted, chat, client, opened, scripted_gateway, user
from tito_io.serve.gateway import Gateway, GatewayOptions
from tito_io.serve.media import MediumBytes, NamedMedia
from tito_io.serve.records import session_metadata
from tito_io.serve.refusals import MIB, GatewayLimits, RequestRefused
from tito_io.serve.session import Session
from tito_io.serve.store import StoreError
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio


def limited(engine: Scripted | None = None, **limits: Any) -> Gateway:
    return scripted_gateway(engine or Scripted(), choices=GatewayOptions(limits=GatewayLimits(**limits)))


async def asked(http: httpx2.AsyncClient, name: str, text: str = "more", **more: Any) -> httpx2.Response:
    body = {"messages": [user(text)], **more}
    return await http.post(f"/sessions/{name}/v1/chat/completions", json=body)


async def test_a_session_takes_a_turn_as_long_as_it_does_not_exceed_its_ids() -> None:
    """The ids of a turn are known when it is sampled."""
    async with client(scripted_gateway(Scripted())) as http:
        ids = (await chat(http, await opened(http), [user()]))["usage"]["total_tokens"]
    for most, status in ((ids, 200), (ids - 1, 429)):
        async with client(limited(tokens=most)) as http:
            name = await opened(http)
            assert (await asked(http, name)).status_code == 200
            answer = await asked(http, name)
            assert answer.status_code == status
    assert f"ids in this session: {ids}, and at most {ids - 1}; raise --max-tokens" in answer.text


@pytest.mark.parametrize("count", [1, 2])
async def test_a_session_has_so_many_turns(count: int) -> None:
    async with client(limited(nodes=count)) as http:
        name = await opened(http)
        for place in range(count):
            assert (await asked(http, name, f"{place}")).status_code == 200
        answer = await asked(http, name)
    assert answer.status_code == 429
    said = f"turns in this session: {count + 1}, and at most {count}; raise --max-nodes"
    assert said in answer.text


async def test_a_request_for_more_turns_than_a_session_may_have_is_not_sampled() -> None:
    engine = Scripted()
    async with client(limited(engine, nodes=5)) as http:
        answer = await asked(http, await opened(http), n=4_000)
    assert (answer.status_code, engine.asked) == (429, [])
    assert "turns in this session with n=4000: 4000, and at most 5; raise --max-nodes" in answer.text


@pytest.mark.parametrize(("evaluation", "status"), [("x", 400), (1, 400), (True, 200), (None, 200)])
async def test_whether_a_session_is_for_evaluation_is_true_or_false(evaluation: Any, status: int) -> None:
    async with client(limited()) as http:
        answer = await http.post("/sessions", json={"evaluation": evaluation})
    assert answer.status_code == status
    assert status == 200 or "evaluation is" in answer.text


async def test_turns_at_once_do_not_exceed_a_limit() -> None:
    """Each had room when its request came; the limit is that of what is stored."""
    engine = Scripted(held=anyio.Event())
    gateway, found = limited(engine, nodes=1), list[int]()
    async with client(gateway) as http:
        name = await opened(http)

        async def ask(text: str) -> None:
            found.append((await asked(http, name, text)).status_code)

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "a")
            group.start_soon(ask, "b")
            with anyio.fail_after(20):
                while engine.running < 2:  # noqa: ASYNC110  # nobody tells
                    await anyio.sleep(0.001)
            assert engine.held is not None
            engine.held.set()
        assert sorted(found) == [200, 429]
        assert (await asked(http, name, n=2)).status_code == 429
        async with gateway.sessions.using(name) as session:
            assert len(session.commits) == 1


async def test_images_at_once_do_not_exceed_a_limit() -> None:
    gateway = limited(media_bytes=MIB)
    async with client(gateway) as http:
        name = await opened(http)
        async with gateway.sessions.using(name) as session:
            new = {"sha256:a": MediumBytes("image/png", bytes(MIB + 1))}
            with pytest.raises(RequestRefused) as refused:
                await session._add_media(new)
            assert str(refused.value) == "images in this session, in MiB: 2, and at most 1; raise --max-media"
            await session._add_media({"sha256:b": MediumBytes("image/png", bytes(MIB - 20))})
            assert list(session.media) == ["sha256:b"]
            assert list((await session.store.load(name)).media) == ["sha256:b"]


async def test_an_image_that_two_requests_bring_at_once_counts_once() -> None:
    gateway = limited(media_bytes=25)
    image = MediumBytes("image/png", bytes(10))
    async with client(gateway) as http:
        name = await opened(http)
        async with gateway.sessions.using(name) as session:
            for _ in range(2):
                await session.commit((), NamedMedia(messages=(), new={"sha256:a": image}))
            assert session.media == {"sha256:a": len(image.encoded())}


async def branched(gateway: Gateway, http: httpx2.AsyncClient, name: str) -> Session:
    """Take two turns after one prompt, and one that continues the second."""
    both = await chat(http, name, HELLO, n=2)
    said = both["choices"][1]["message"]
    await chat(http, name, [*HELLO, said, user()])
    async with gateway.sessions.using(name) as session:
        return session


async def test_what_another_turn_continues_is_not_taken_back_and_the_rest_is() -> None:
    engine = Scripted(each=str)  # the two turns say different things
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        session = await branched(gateway, http, name)
        first, second, third = session.commits.values()
        assert third.parent == second.name
        ids = session.ids
        await session.take_back((first, second))
        assert list(session.commits) == [second.name, third.name]
        assert session.ids == ids - len(first.step.ids)
        assert sorted((await session.store.load(name)).rows) == [1, 2]
        await session.take_back((third,))
        assert list(session.commits) == [second.name]
        await session.take_back((first, second, third))  # two are gone already
        assert (list(session.commits), session.ids, len(session.trajectory)) == ([], 0, 0)
        assert (await session.store.load(name)).rows == {}


class Forgetful(MemoryStore):
    """A store that cannot note that a turn was received."""

    async def received(self, name: str, places: object) -> None:
        raise StoreError(f"{name}: {places}")


@pytest.mark.parametrize("store", [MemoryStore, Forgetful])
async def test_a_turn_that_a_client_has_is_no_longer_shown_as_unreceived(
    store: type[MemoryStore], caplog: pytest.LogCaptureFixture
) -> None:
    gateway = scripted_gateway(Scripted(), store())
    async with client(gateway) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
        async with gateway.sessions.using(name) as session:
            (commit,) = session.commits.values()
            session.unreceived.add(commit.name)
            (node,) = session_metadata(session)["tree"]["nodes"]
            assert node["received"] is False
            await session.received([commit])
            (node,) = session_metadata(session)["tree"]["nodes"]
            assert "received" not in node
    warned = "the store did not note that a turn was received" in caplog.text
    assert warned is (store is Forgetful)
