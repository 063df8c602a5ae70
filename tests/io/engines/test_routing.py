"""What routers learn of a turn: its conversation and its request, by headers, from every adapter alike."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import httpx2
import pytest

from tests.io.engines.dynamo import dynamo_server
from tests.io.engines.routes import IDS, ROUTES, Route, Served
from tests.io.engines.scripted import Heard
from tests.io.engines.sglang import sglang_server
from tests.io.engines.vllm.vllm_server import PROMPT, Mock, chunks, completion_answer, events, serving
from tito_core import InputError
from tito_io.client.token_client import TokenClient
from tito_io.dialects import Chat
from tito_io.embedded import app
from tito_io.engines.protocol import AbortedError, RequestError, Sampling
from tito_io.engines.routing import REQUEST_HEADERS, SESSION_HEADERS, digest_name, routing_headers
from tito_io.engines.sglang import SGLang
from tito_io.engines.sglang.requests import GENERATE
from tito_io.engines.vllm import COMPLETIONS, VLLM
from tito_io.integrations.model_calls import ModelCalls

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hi"}]


class Listening(httpx2.AsyncBaseTransport):
    """Passes requests on, and keeps the headers of those that name themselves."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self.transport = transport
        self.headers: list[httpx2.Headers] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if REQUEST_HEADERS[0] in request.headers:
            self.headers.append(request.headers)
        return await self.transport.handle_async_request(request)


def listened(answer: Any = None) -> tuple[VLLM, Listening]:
    """Return an engine at a server, and what that hears."""
    heard = Listening(httpx2.MockTransport(Mock({COMPLETIONS: answer or serving(completion_answer())})))
    return VLLM("http://mock:1", transport=heard), heard


def names(headers: httpx2.Headers) -> set[str | None]:
    """Return the conversation's names in headers: one, where all routers learn the same."""
    return {headers.get(one) for one in SESSION_HEADERS}


@pytest.mark.parametrize("watch", [None, Heard()])
async def test_a_turn_names_its_conversation_and_its_request(watch: Any) -> None:
    engine, heard = listened()
    sampling = Sampling(max_tokens=2, conversation="game-7")
    replies = [await engine.from_ids(PROMPT, sampling, watch=watch) for _ in range(2)]
    assert [names(one) for one in heard.headers] == [{"game-7"}] * 2
    sent = [{one[name] for name in REQUEST_HEADERS} for one in heard.headers]
    assert sent == [{reply.request_id} for reply in replies]
    assert sent[0] != sent[1], "each request has an id of its own"
    assert all(str(UUID(reply.request_id)) == reply.request_id for reply in replies), "as Dynamo demands"


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
async def test_every_adapter_names_turns_alike(route: Route) -> None:
    heard = Listening(httpx2.MockTransport(served := Served(route)))
    async with served.engine(transport=heard) as engine:
        reply = await engine.from_ids(IDS, Sampling(max_tokens=2, conversation="game-7"))
    assert names(heard.headers[-1]) == {"game-7"}
    assert {heard.headers[-1][one] for one in REQUEST_HEADERS} == {reply.request_id}


async def test_a_turn_without_a_conversation_names_none() -> None:
    engine, heard = listened()
    await engine.from_ids(PROMPT, Sampling(max_tokens=2))
    assert names(heard.headers[0]) == {None}
    assert heard.headers[0]["x-request-id"]


async def test_errors_and_what_came_before_them_have_the_requests_id() -> None:
    engine, heard = listened(events(*chunks(completion_answer(finish_reason=None))))
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, Sampling(max_tokens=2), watch=Heard())
    assert caught.value.request_id == heard.headers[0]["x-request-id"]
    assert caught.value.partial is not None
    assert caught.value.partial.request_id == caught.value.request_id
    engine, heard = listened(httpx2.Response(400, json={"error": "no"}))
    with pytest.raises(RequestError) as refused:
        await engine.from_ids(PROMPT, Sampling(max_tokens=2))
    assert refused.value.request_id == heard.headers[0]["x-request-id"]


@pytest.mark.parametrize("name", ["two words", "a/b", "ü", "line\r\nbreak", "x" * 129])
def test_names_that_some_router_refuses_are_replaced_by_a_digest(name: str) -> None:
    assert set(routing_headers(name, "r").values()) == {"r", digest_name(name)}
    assert routing_headers(name, "r") == routing_headers(name, "r")


@pytest.mark.parametrize("name", ["", 7, b"x"])
async def test_what_is_no_name_is_refused_before_anything_is_sent(name: Any) -> None:
    engine, heard = listened()
    with pytest.raises(InputError, match="conversation"):
        await engine.from_ids(PROMPT, Sampling(max_tokens=2, conversation=name))
    assert heard.headers == []


async def test_a_token_client_names_each_turn_of_a_conversation() -> None:
    heard = Listening(httpx2.ASGITransport(app()))
    client = TokenClient(VLLM("http://embedded", transport=heard))
    first = await client.turn([], HELLO, sampling={"max_tokens": 4}, conversation="game-7")
    prompt = [*HELLO, first.message, {"role": "user", "content": "more"}]
    again = await client.turn([first.step], prompt, sampling={"max_tokens": 4}, conversation="game-7")
    group = await client.turns([], HELLO, 2, sampling={"max_tokens": 4}, conversation="game-8")
    found = [names(one) for one in heard.headers]
    assert found[0] == found[1] == {"game-7"}
    assert found[-1] == {"game-8"}
    assert first.turn.reply.request_id != again.turn.reply.request_id
    assert {one.reply.request_id for one in group.turns} == {heard.headers[-1]["x-request-id"]}


@pytest.mark.parametrize("watch", [None, Heard()])
async def test_the_worker_that_dynamo_names_is_read_back(watch: Any) -> None:
    """In the form of a real frontend 1.6.1 with `extra_fields: ["worker_id"]`."""
    named = {"prefill_worker_id": 11, "prefill_dp_rank": 0, "decode_worker_id": 12, "decode_dp_rank": 0}
    for told, worker in ({"worker_id": named}, "12"), ({}, None):
        engine, _ = dynamo_server.mocked(dynamo_server.Turn(nvext=told))
        assert (await engine.from_ids(PROMPT, Sampling(max_tokens=2), watch=watch)).worker == worker


@pytest.mark.parametrize("watch", [None, Heard()])
async def test_a_worker_that_an_answers_header_names_is_read_back(watch: Any) -> None:
    """As SMG's documentation has it: `x-smg-routed-worker-id` is the worker's address."""

    def routed(request: httpx2.Request, body: Any) -> httpx2.Response:
        answer = serving(completion_answer())(request, body)
        answer.headers["X-SMG-Routed-Worker-Id"] = "http://w2:8000"
        return answer

    engine, _ = listened(routed)
    reply = await engine.from_ids(PROMPT, Sampling(max_tokens=2), watch=watch)
    assert reply.worker == "http://w2:8000"
    engine, _ = listened()
    assert (await engine.from_ids(PROMPT, Sampling(max_tokens=2), watch=watch)).worker is None


async def test_sglangs_rid_begins_with_the_conversations_name() -> None:
    """SMG strips `_t` and digits at the end, and takes the rest for the conversation, before any header."""
    mock = sglang_server.Mock({GENERATE: sglang_server.generated()})
    engine = SGLang("http://mock:30000", transport=httpx2.MockTransport(mock))
    for _ in range(2):
        await engine.from_ids([4, 5, 6], Sampling(max_tokens=2, conversation="game 7"))
    await engine.from_ids([4, 5, 6], Sampling(max_tokens=2))
    first, second, unnamed = (body["rid"] for body in mock.bodies(GENERATE))
    assert [re.sub(r"_t[0-9]+$", "", rid) for rid in (first, second)] == [digest_name("game 7")] * 2
    assert first != second
    assert str(UUID(unnamed)) == unnamed


async def test_each_rollout_of_model_calls_has_a_name_of_its_own() -> None:
    heard = Listening(httpx2.ASGITransport(app()))
    client = TokenClient(VLLM("http://embedded", transport=heard))
    for _ in range(2):
        calls, prompt = ModelCalls(client), list[Any](HELLO)
        for _ in range(2):
            answer = await calls.answer(Chat(), {"messages": prompt, "max_tokens": 4})
            prompt += [answer["choices"][0]["message"], {"role": "user", "content": "more"}]
    found = [names(one) for one in heard.headers]
    assert found[0] == found[1] != found[2] == found[3]
    assert None not in found[0]
