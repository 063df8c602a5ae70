"""Miles as an engine: a conversation by messages, in which every sampled id is accounted for."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import httpx2
import pytest

from tests.io.engines.miles.miles_server import FIRST_SAMPLED, Fake, Says
from tests.io.engines.miles.test_session import HELLO, TOOLS, continued
from tito_core import InputError
from tito_io.engines.clients import Clients
from tito_io.engines.constraint import Constraint
from tito_io.engines.miles import Miles, RecordsUnavailableError
from tito_io.engines.protocol import (
    Delta,
    Engine,
    ModelLimits,
    Rendering,
    RequestError,
    Sampling,
    ServerError,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio
PLAIN = Rendering()


def engine(fake: Fake, **options: Any) -> Miles:
    return Miles("http://miles", transport=fake.transport, **options)


async def test_it_is_an_engine() -> None:
    made: Engine = engine(Fake())
    assert made.name == "miles"
    await made.aclose()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("echoes", [False, True])
async def test_a_conversation_keeps_every_id(later: bool, tree: bool, echoes: bool) -> None:
    fake = Fake(later=later, tree=tree, echoes=echoes)
    prompt: list[Any] = list(HELLO)
    kept: tuple[int, ...] = ()
    async with engine(fake) as miles:
        for number in range(6):
            reply = await miles.from_messages(prompt, Rendering(tools=tuple(TOOLS)), Sampling())
            assert reply.prompt_ids[: len(kept)] == kept
            kept = (*reply.prompt_ids, *reply.completion_ids)
            prompt = continued(reply, {"role": "user", "content": f"and {number}"}, after=prompt)
        (talk,) = miles.conversations
        (sample,) = (await talk.session.samples()).samples
        assert [one for one in sample.tokens if one >= FIRST_SAMPLED] == fake.sampled
    assert (fake.sessions, miles.router.undeleted) == ({}, {})


async def test_ids_are_not_taken_and_nothing_is_sent() -> None:
    fake = Fake()
    async with engine(fake) as miles:
        with pytest.raises(UnsupportedError, match="session server keeps the ids"):
            await miles.from_ids([1, 2], Sampling())
        with pytest.raises(UnsupportedError, match="no route that shows a rendering"):
            await miles.render(HELLO, PLAIN, add_generation_prompt=True)
        with pytest.raises(UnsupportedError, match="one turn a request"):
            await miles.from_messages(HELLO, PLAIN, Sampling(n=2))
        with pytest.raises(UnsupportedError, match=r"cannot be honoured with Miles: .* Nothing was sent"):
            await miles.from_messages(HELLO, PLAIN, Sampling(constraint=Constraint(schema={})))
    assert fake.bodies("completions") == []
    assert fake.sessions == {}


async def test_a_prompt_that_continues_no_conversation_gets_a_session_of_its_own() -> None:
    fake = Fake(later=False)
    other = [{"role": "user", "content": "something else"}]
    async with engine(fake) as miles:
        first = await miles.from_messages(HELLO, PLAIN, Sampling())
        second = await miles.from_messages(other, PLAIN, Sampling())
        again = await miles.from_messages(HELLO, PLAIN, Sampling())  # the same prompt: nothing is overwritten
        third = await miles.from_messages(continued(first), PLAIN, Sampling())
        assert len(fake.sessions) == 3
    kept = (*first.prompt_ids, *first.completion_ids)
    assert third.prompt_ids[: len(kept)] == kept
    assert len({reply.completion_ids for reply in (first, second, again, third)}) == 4


async def test_a_branch_overwrites_no_turn() -> None:
    """A server of the first kind would take back the second turn and give its place to the branch."""
    fake = Fake(later=False)
    async with engine(fake) as miles:
        first = await miles.from_messages(HELLO, PLAIN, Sampling())
        second = await miles.from_messages(continued(first), PLAIN, Sampling())
        await miles.from_messages(continued(first, {"role": "user", "content": "else"}), PLAIN, Sampling())
        found = await miles.conversations[0].session.records()
        assert [one.completion_ids for one in found.records] == [
            first.completion_ids,
            second.completion_ids,
        ]
        await miles.from_messages([*HELLO, first.message or {}], PLAIN, Sampling())  # ends as a turn ended
        assert len(miles.conversations) == len(fake.sessions) == 3


async def test_other_tools_are_another_conversation() -> None:
    fake = Fake()
    async with engine(fake) as miles:
        first = await miles.from_messages(HELLO, PLAIN, Sampling())
        await miles.from_messages(continued(first), Rendering(tools=tuple(TOOLS)), Sampling())
        assert len(miles.conversations) == 2


async def test_two_conversations_at_once_do_not_meet() -> None:
    fake = Fake()
    lengths: list[int] = []

    async def talk(miles: Miles, text: str) -> None:
        prompt: list[Any] = [{"role": "user", "content": text}]
        for _ in range(4):
            reply = await miles.from_messages(prompt, PLAIN, Sampling())
            prompt = continued(reply, after=prompt)
        lengths.append(len([one for one in reply.prompt_ids if one >= FIRST_SAMPLED]))

    async with engine(fake) as miles:
        async with anyio.create_task_group() as group:
            for text in "abc":
                group.start_soon(talk, miles, text)
        assert len(miles.conversations) == 3
    assert lengths == [9, 9, 9]


@pytest.mark.parametrize("status", ["refused", "cancelled"])
async def test_a_first_turn_that_fails_leaves_no_session(status: str) -> None:
    """A server that does not branch cannot begin such a session again."""
    refused = {"object": "error", "message": "no", "code": 400}
    fake = Fake(refusal=refused) if status == "refused" else Fake(held=anyio.Event())
    async with engine(fake) as miles:
        if status == "refused":
            with pytest.raises(RequestError):
                await miles.from_messages(HELLO, PLAIN, Sampling())
        else:
            with anyio.move_on_after(0.05):
                await miles.from_messages(HELLO, PLAIN, Sampling())
        assert fake.sessions == {}
        assert miles.conversations == []
        fake.refusal, fake.held = None, None
        assert (await miles.from_messages(HELLO, PLAIN, Sampling())).completion_ids


async def test_a_later_turn_that_fails_may_be_asked_for_again() -> None:
    fake = Fake(later=False)
    async with engine(fake) as miles:
        first = await miles.from_messages(HELLO, PLAIN, Sampling())
        fake.script = [Says(text=None)]  # the engine answers without content
        with pytest.raises(ServerError, match="502"):
            await miles.from_messages(continued(first), PLAIN, Sampling())
        again = await miles.from_messages(continued(first), PLAIN, Sampling())
        assert len(fake.sessions) == 1
    assert again.prompt_ids[-1] == 9


async def test_an_outage_of_the_records_is_not_hidden() -> None:
    fake = Fake(echoes=False, unreadable=1)
    async with engine(fake) as miles:
        with pytest.raises(RecordsUnavailableError):
            await miles.from_messages(HELLO, PLAIN, Sampling())


async def test_sampling_is_said_in_the_chat_api_s_words() -> None:
    fake = Fake()
    sampling = Sampling(
        max_tokens=7, temperature=0.5, seed=3, stop=("x",), stop_ids=(2,), extra={"top_p": 0.9}
    )
    async with engine(fake, model="m", evaluation=True) as miles:
        await miles.from_messages(HELLO, Rendering(template_args={"thinking": True}), sampling)
    (body,) = fake.bodies("completions")
    said = {
        "max_tokens": 7,
        "temperature": 0.5,
        "seed": 3,
        "stop": ["x"],
        "stop_token_ids": [2],
        "top_p": 0.9,
    }
    assert said.items() <= body.items()
    assert (body["model"], body["chat_template_kwargs"]) == ("m", {"thinking": True})
    assert fake.bodies("/sessions") == [{"evaluation": True, "temperature": 0.5, "top_p": 0.9}]


@pytest.mark.parametrize("name", ["input_ids", "stream", "n", "max_tokens", "logprobs"])
async def test_what_a_session_says_itself_is_no_extra(name: str) -> None:
    async with engine(Fake()) as miles:
        with pytest.raises(InputError, match=f"'{name}' cannot be passed here"):
            await miles.from_messages(HELLO, PLAIN, Sampling(extra={name: 1}))


async def test_whoever_watches_is_told_of_the_turn_at_once() -> None:
    seen: list[Delta] = []

    async def watch(delta: Delta) -> None:
        seen.append(delta)

    async with engine(Fake()) as miles:
        reply = await miles.from_messages(HELLO, PLAIN, Sampling(), watch=watch)
    assert seen == [Delta(ids=reply.completion_ids, logprobs=reply.logprobs, text="ok")]


async def test_limits_are_the_engine_s_behind_the_session() -> None:
    async with engine(Fake()) as miles:
        assert await miles.limits() == ModelLimits()
        await miles.from_messages(HELLO, PLAIN, Sampling())
        assert await miles.limits() == ModelLimits(max_model_len=4096)
        assert await miles.limits() == ModelLimits(max_model_len=4096)


@pytest.mark.parametrize(
    "card", [{}, {"data": []}, {"data": [1]}, {"data": [{"max_model_len": "long"}]}, None]
)
async def test_an_engine_that_names_no_limit_has_none_known(card: Any) -> None:
    def answered(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/models"):
            return httpx2.Response(404 if card is None else 200, json=card or {})
        return httpx2.Response(500, json={})

    fake = Fake()
    async with engine(fake) as miles:
        await miles.from_messages(HELLO, PLAIN, Sampling())
        session = miles.conversations[0].session
        session.wire.clients = Clients(partial(httpx2.AsyncClient, transport=httpx2.MockTransport(answered)))
        assert await miles.limits() == ModelLimits()
