"""A session's limits at their bounds, and what is left of it when turns are taken back."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest

from tests.io.serve.gateway import HELLO, Scripted, Talk, limited, talking, user
from tito_io.serve.media import MediumBytes, NamedMedia
from tito_io.serve.refusals import MIB, RequestRefused
from tito_io.serve.store import StoreError
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio


async def asked(talk: Talk, text: str = "more", **more: Any) -> httpx2.Response:
    return await talk.post({"messages": [user(text)], **more})


async def test_a_session_takes_a_turn_as_long_as_it_does_not_exceed_its_ids() -> None:
    """The ids of a turn are known when it is sampled."""
    async with talking() as talk:
        ids = (await talk.chat([user()]))["usage"]["total_tokens"]
    for most, status in ((ids, 200), (ids - 1, 429)):
        async with talking(choices=limited(tokens=most)) as talk:
            assert (await asked(talk)).status_code == 200
            answer = await asked(talk)
            assert (answer.status_code, len(talk.engine.asked)) == (status, 2 if status == 200 else 1)
    assert f"ids in this session: {ids}, and at most {ids - 1}; raise --max-tokens" in answer.text


@pytest.mark.parametrize(
    ("most", "before", "n", "said"),
    [
        (1, 1, 1, "turns in this session: 2, and at most 1"),
        (2, 2, 1, "turns in this session: 3, and at most 2"),
        (5, 0, 4_000, "turns in this session with n=4000: 4000, and at most 5"),
    ],
)
async def test_a_session_has_so_many_turns(most: int, before: int, n: int, said: str) -> None:
    async with talking(choices=limited(nodes=most)) as talk:
        for place in range(before):
            assert (await asked(talk, f"{place}")).status_code == 200
        answer = await asked(talk, n=n)
    assert (answer.status_code, len(talk.engine.asked)) == (429, before)
    assert f"{said}; raise --max-nodes" in answer.text


@pytest.mark.parametrize(("evaluation", "status"), [("x", 400), (1, 400), (True, 200), (None, 200)])
async def test_whether_a_session_is_for_evaluation_is_true_or_false(evaluation: Any, status: int) -> None:
    async with talking() as talk:
        answer = await talk.http.post("/sessions", json={"evaluation": evaluation})
    assert answer.status_code == status
    assert status == 200 or "evaluation is" in answer.text


async def test_turns_at_once_do_not_exceed_a_limit() -> None:
    """Each had room when its request came; the limit is that of what is stored."""
    found = list[int]()
    async with talking(Scripted(held=anyio.Event()), choices=limited(nodes=1)) as talk:

        async def ask(text: str) -> None:
            found.append((await asked(talk, text)).status_code)

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "a")
            group.start_soon(ask, "b")
            await talk.engine.runs(2)
            talk.engine.go_on()
        assert sorted(found) == [200, 429]
        assert (await asked(talk, n=2)).status_code == 429
        assert len(await talk.commits()) == 1


async def test_images_at_once_do_not_exceed_a_limit() -> None:
    async with talking(choices=limited(media_bytes=MIB)) as talk:
        session = await talk.session()
        too_long, fits = (MediumBytes("image/png", bytes(size)) for size in (MIB + 1, MIB - 20))
        with pytest.raises(RequestRefused) as refused:
            await session.commit((), NamedMedia(messages=(), new={"sha256:a": too_long}))
        assert str(refused.value) == "images in this session, in MiB: 2, and at most 1; raise --max-media"
        for _ in range(2):  # what two requests bring at once counts once
            await session.commit((), NamedMedia(messages=(), new={"sha256:b": fits}))
        assert session.media == {"sha256:b": len(fits.encoded())}
        assert list((await session.store.load(talk.name)).media) == ["sha256:b"]


async def test_what_another_turn_continues_is_not_taken_back_and_the_rest_is() -> None:
    async with talking(Scripted(each=str)) as talk:  # the two turns after one prompt say different things
        both = await talk.chat(HELLO, n=2)
        await talk.chat([*HELLO, both["choices"][1]["message"], user()])
        session = await talk.session()
        first, second, third = session.commits.values()
        assert third.parent == second.name
        ids = session.ids
        await session.take_back((first, second))
        assert list(session.commits) == [second.name, third.name]
        assert session.ids == ids - len(first.step.ids)
        assert sorted((await session.store.load(talk.name)).rows) == [1, 2]
        await session.take_back((third,))
        assert list(session.commits) == [second.name]
        await session.take_back((first, second, third))  # two are gone already
        assert (list(session.commits), session.ids, len(session.trajectory)) == ([], 0, 0)
        assert (await session.store.load(talk.name)).rows == {}


class Forgetful(MemoryStore):
    """A store that cannot note that a turn was received."""

    async def received(self, name: str, places: object) -> None:
        raise StoreError(f"{name}: {places}")


@pytest.mark.parametrize("store", [MemoryStore, Forgetful])
async def test_a_turn_that_a_client_has_is_no_longer_shown_as_unreceived(
    store: type[MemoryStore], caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(store=store()) as talk:
        await talk.chat(HELLO)
        session = await talk.session()
        (commit,) = session.commits.values()
        session.unreceived.add(commit.name)
        assert [node["received"] for node in await talk.nodes()] == [False]
        await session.received([commit])
        assert not [node for node in await talk.nodes() if "received" in node]
    warned = "the store did not note that a turn was received" in caplog.text
    assert warned is (store is Forgetful)
