"""The clients that agents really use, over a real socket: fifty turns, and every id is the engine's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import attrs
import httpx2
import pytest
from anthropic import AsyncAnthropic
from anthropic import NotFoundError as AnthropicNotFoundError
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve.gateway import HELLO, Remembering, embedded_gateway, opened, served, user
from tito_core.samples import make_rows
from tito_io.embedded import FaultRates
from tito_io.serve.app import app
from tito_io.serve.auth import HEADER
from tito_io.serve.gateway import Gateway
from tito_io.serve.session import Session

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # as uvicorn's
TURNS = 50
ASK: Any = HELLO
LONG: Any = [user("word " * 90)]
TOOLS: Any = [WEATHER]
FUNCTION: Any = WEATHER["function"]
MODEL = "any-name"


@attrs.frozen
class Place:
    """A gateway that is served, and a session of it."""

    gateway: Gateway
    url: str
    name: str

    @property
    def engine(self) -> Remembering:
        engine = self.gateway.turns.engine
        assert isinstance(engine, Remembering)
        return engine

    async def session(self) -> Session:
        async with self.gateway.sessions.using(self.name) as session:
            return session


@asynccontextmanager
async def placed(**options: Any) -> AsyncIterator[Place]:
    gateway = embedded_gateway(**options)
    async with served(app(gateway)) as url, httpx2.AsyncClient(base_url=url) as http:
        yield Place(gateway, url, await opened(http))


def openai(place: Place, path: str | None = None, **options: Any) -> AsyncOpenAI:
    within = f"/sessions/{place.name}" if path is None else path
    return AsyncOpenAI(
        **{"base_url": f"{place.url}{within}/v1", "api_key": "none", "max_retries": 0, **options}
    )


def anthropic(place: Place) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=f"{place.url}/sessions/{place.name}", api_key="none", max_retries=0)


async def check(place: Place, turns: int, *, by_messages: int = 1) -> None:
    """Demand that what is kept is what the engine saw and sampled, that it grew, and trains once."""
    session, replies = await place.session(), place.engine.replies
    commits = list(session.commits.values())
    assert len(commits) == len(replies) == turns
    for commit, reply in zip(commits, replies, strict=True):
        assert commit.step.prompt_ids.tolist() == list(reply.prompt_ids)
        assert commit.step.completion_ids.tolist() == list(reply.completion_ids)
        assert commit.step.logprobs == reply.logprobs
    for before, after in pairwise(commits):
        assert after.step.prompt_ids.starts_with(before.step.ids)
    assert sum(commit.origin.route == "MITO" for commit in commits) == by_messages
    (row,) = make_rows(session.forest).rows
    trained = [one for one, mask in zip(row.ids, row.loss_mask, strict=True) if mask]
    assert trained == [one for reply in replies for one in reply.completion_ids]


def results(calls: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": call["id"], "content": "sunny, 21 C"} for call in calls]


@pytest.mark.parametrize("thoughts", ["echoed", "dropped"])
async def test_openai_s_client_keeps_every_id_through_fifty_turns_with_tools(thoughts: str) -> None:
    async with placed() as place, openai(place) as client:
        messages: list[Any] = list(HELLO)
        for _ in range(TURNS):
            reply = await client.chat.completions.create(
                model=MODEL,
                messages=messages,
                tools=TOOLS,
                max_completion_tokens=120,
            )
            message = reply.choices[0].message
            assert reply.usage is not None
            assert reply.usage.prompt_tokens_details is not None
            said = message.model_dump(exclude_none=True)
            if thoughts == "dropped":
                said = {k: v for k, v in said.items() if k in ("role", "content", "tool_calls")}
            messages = [*messages, said, *(results(said.get("tool_calls", [])) or [user()])]
        await check(place, TURNS)


async def test_openai_s_client_keeps_every_id_of_fifty_streamed_turns() -> None:
    async with placed() as place, openai(place) as client:
        messages: list[Any] = list(HELLO)
        told: list[int] = []
        for _ in range(TURNS):
            said = await streamed(client, messages, told)
            messages = [*messages, said, *(results(said.get("tool_calls", [])) or [user()])]
        await check(place, TURNS)
        assert told == [one for reply in place.engine.replies for one in reply.completion_ids]


async def streamed(client: AsyncOpenAI, messages: list[Any], told: list[int]) -> dict[str, Any]:
    """Put a streamed message together as agents do; `told` gets its ids."""
    said: dict[str, Any] = {"role": "assistant", "content": "", "reasoning": ""}
    calls: dict[int, dict[str, Any]] = {}
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=messages,
        tools=TOOLS,
        max_tokens=120,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
    )
    finish, usage = None, None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            told += (choice.model_extra or {}).get("token_ids") or []
            said["content"] += choice.delta.content or ""
            said["reasoning"] += (choice.delta.model_extra or {}).get("reasoning") or ""
            for piece in choice.delta.tool_calls or []:
                call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.id or ""
                call["name"] += (piece.function.name or "") if piece.function else ""
                call["arguments"] += (piece.function.arguments or "") if piece.function else ""
    assert finish is not None
    assert usage is not None
    if calls:
        said["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls.values()
        ]
    return {name: value for name, value in said.items() if value}


TOOL = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": FUNCTION["parameters"],
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_anthropic_s_client_keeps_every_id_through_fifty_turns_with_tools(stream: bool) -> None:
    async with placed(fault_rates=FaultRates(malformed=0.0)) as place, anthropic(place) as client:
        messages: list[Any] = list(HELLO)
        asked: dict[str, Any] = {"model": MODEL, "max_tokens": 120, "tools": [TOOL], "system": "Be brief."}
        for _ in range(TURNS):
            if stream:
                async with client.messages.stream(messages=messages, **asked) as events:
                    reply = await events.get_final_message()
            else:
                reply = await client.messages.create(messages=messages, **asked)
            content = [block.model_dump(exclude_none=True) for block in reply.content]
            used = [block for block in content if block["type"] == "tool_use"]
            answers: Any = [
                {"type": "tool_result", "tool_use_id": one["id"], "content": "sunny"} for one in used
            ]
            messages = [
                *messages,
                {"role": "assistant", "content": content},
                {"role": "user", "content": answers or "more"},
            ]
        await check(place, TURNS)


@pytest.mark.parametrize("named", [False, True], ids=["restated", "by name"])
async def test_openai_s_responses_keep_every_id(named: bool) -> None:
    async with placed() as place, openai(place) as client:
        items: list[Any] = [{"role": "user", "content": "Where is the bridge?"}]
        tool: Any = {"type": "function", **FUNCTION, "strict": False}
        last = None
        for _ in range(20):
            before: Any = {"previous_response_id": last} if named and last else {}
            reply = await client.responses.create(
                model=MODEL,
                input=items,
                tools=[tool],
                max_output_tokens=120,
                instructions="Be brief.",
                **before,
            )
            last = reply.id
            said = [item.model_dump(exclude_none=True) for item in reply.output]
            calls = [item for item in said if item["type"] == "function_call"]
            new: list[Any] = [
                {"type": "function_call_output", "call_id": one["call_id"], "output": "sunny"}
                for one in calls
            ] or [{"role": "user", "content": "more"}]
            items = new if named else [*items, *said, *new]
        await check(place, 20)


async def test_a_streamed_response_of_openai_s() -> None:
    async with placed() as place, openai(place) as client:
        events = [
            event async for event in await client.responses.create(model=MODEL, input="hi", stream=True)
        ]
        await check(place, 1)
    assert events[-1].type == "response.completed"


# How a session is named.


async def test_forced_calls_and_schemas_keep_every_id() -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Quito"]}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    named = {"type": "function", "function": {"name": "get_weather"}}
    wanted: Any = [{"tool_choice": "required"}, {"tool_choice": named}, {"response_format": form}]
    async with placed(max_new_tokens=None) as place, openai(place) as client:
        messages: list[Any] = list(HELLO)
        for turn in range(12):
            reply = await client.chat.completions.create(
                model=MODEL, messages=messages, tools=TOOLS, parallel_tool_calls=False, **wanted[turn % 3]
            )
            said = reply.choices[0].message.model_dump(exclude_none=True)
            if not said.get("tool_calls"):
                assert turn % 3 == 2
                assert json.loads(said["content"])["city"] == "Quito"
            assert len(said.get("tool_calls", [])) <= 1
            messages = [*messages, said, *(results(said.get("tool_calls", [])) or [user()])]
        await check(place, 12)
        kept = list((await place.session()).commits.values())
        assert [one.origin.request.get("tool_choice") for one in kept[:3]] == ["required", named, None]


async def test_a_header_names_a_session() -> None:
    async with placed() as place:
        async with openai(place, "", default_headers={HEADER: place.name}) as client:
            await client.chat.completions.create(model=MODEL, messages=ASK)
        await check(place, 1)


async def test_a_session_s_id_as_the_key_names_it() -> None:
    async with placed() as place:
        async with openai(place, "", api_key=place.name) as client:
            await client.chat.completions.create(model=MODEL, messages=ASK)
        async with AsyncAnthropic(base_url=place.url, api_key=place.name) as other:
            await other.messages.create(model=MODEL, max_tokens=9, messages=ASK)
        session = await place.session()
    assert [commit.origin.dialect for commit in session.commits.values()] == ["chat", "anthropic"]


async def test_any_key_names_a_session_of_its_own_where_there_are_no_keys() -> None:
    async with placed() as place:
        names = []
        for key in ("rollout-1", "rollout-2", "rollout-1"):
            async with openai(place, "", api_key=key) as client:
                raw = await client.chat.completions.with_raw_response.create(
                    model=MODEL,
                    messages=ASK,
                )
                names.append(raw.headers[HEADER])
    assert names[0] == names[2] != names[1]


# What else client libraries look at.


async def test_errors_are_the_clients_own() -> None:
    async with placed(max_model_len=64) as place, openai(place) as client:
        with pytest.raises(BadRequestError) as caught:
            await client.chat.completions.create(model=MODEL, messages=LONG)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(BadRequestError, match="tool_choice"):
            await client.chat.completions.create(model=MODEL, messages=ASK, tool_choice="required")
        async with openai(place, "/sessions/" + "0" * 32) as lost:
            with pytest.raises(NotFoundError):
                await lost.chat.completions.create(model=MODEL, messages=ASK)
        listed = await client.models.list()
    assert listed.data[0].id == place.gateway.turns.model


def hinting(method: str, path: str) -> str:
    """Return what is said of a path that is no route."""
    return f"{method} {path}: there is no such route; the base URL is http://HOST:PORT/sessions/ID/v1"


@pytest.mark.parametrize("within", ["", "/v1/v1"])
async def test_a_wrong_base_url_is_told_to_openai_s_client(within: str) -> None:
    async with placed() as place:
        base = f"{place.url}/sessions/{place.name}{within}"
        async with openai(place, base_url=base) as client:
            with pytest.raises(NotFoundError) as caught:
                await client.chat.completions.create(model=MODEL, messages=ASK)
            with pytest.raises(NotFoundError) as of_responses:
                await client.responses.create(model=MODEL, input="hi")
        async with openai(place, "/nowhere") as client:
            with pytest.raises(NotFoundError) as nowhere:
                await client.models.list()
    path = f"/sessions/{place.name}{within}"
    for error, asked in (
        (caught.value, hinting("POST", f"{path}/chat/completions")),
        (of_responses.value, hinting("POST", f"{path}/responses")),
        (nowhere.value, hinting("GET", "/nowhere/v1/models")),
    ):
        assert (error.code, error.type) == ("NotFoundError", "not_found_error")
        assert isinstance(error.body, dict)
        assert error.body["message"].startswith(asked)


@pytest.mark.parametrize("within", ["/v1", "/nowhere"])
async def test_a_wrong_base_url_is_told_to_anthropic_s_client(within: str) -> None:
    async with placed() as place:
        base = f"{place.url}/sessions/{place.name}{within}"
        async with AsyncAnthropic(base_url=base, api_key="none", max_retries=0) as client:
            for call, path in (
                (client.messages.create(model=MODEL, max_tokens=9, messages=ASK), "POST {}/v1/messages"),
                (client.messages.count_tokens(model=MODEL, messages=ASK), "POST {}/v1/messages/count_tokens"),
                (client.models.list(), "GET {}/v1/models"),
            ):
                with pytest.raises(AnthropicNotFoundError) as caught:
                    await call
                error: Any = caught.value.body
                assert (error["type"], error["error"]["type"]) == ("error", "not_found_error")
                said = path.format(f"/sessions/{place.name}{within}")
                assert error["error"]["message"].startswith(
                    f"{said}: there is no such route; the base URL is "
                )


async def test_a_session_that_is_not_there_is_told_to_anthropic_s_client() -> None:
    async with (
        placed() as place,
        AsyncAnthropic(base_url=f"{place.url}/sessions/nope", api_key="none", max_retries=0) as client,
    ):
        for call in (
            client.messages.create(model=MODEL, max_tokens=9, messages=ASK),
            client.messages.count_tokens(model=MODEL, messages=ASK),
            client.models.list(),
        ):
            with pytest.raises(AnthropicNotFoundError) as caught:
                await call
            error: Any = caught.value.body
            words = "session not found: session_id=nope; there is no such session. An id has "
            assert error["error"]["message"].startswith(words)


async def test_a_session_that_is_not_there_is_told_to_openai_s_client() -> None:
    name = "0" * 32
    async with placed() as place, openai(place, f"/sessions/{name}/v1") as client:
        for call in (
            client.chat.completions.create(model=MODEL, messages=ASK),
            client.responses.create(model=MODEL, input="hi"),
            client.models.list(),
        ):
            with pytest.raises(NotFoundError, match=f"session not found: session_id={name}") as caught:
                await call
            assert (caught.value.code, caught.value.type) == ("SessionNotFoundError", "not_found_error")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/models", "GET, HEAD"),
        ("PUT", "/sessions/{}", "DELETE, GET, HEAD"),
        ("GET", "/sessions/{}/v1/chat/completions", "POST"),
        ("OPTIONS", "/sessions/{}/v1/chat/completions", "POST"),
        ("DELETE", "/sessions/{}/samples", "GET, HEAD, POST"),
    ],
)
async def test_a_wrong_method_is_told_with_the_right_ones(method: str, path: str, allowed: str) -> None:
    async with placed() as place, httpx2.AsyncClient(base_url=place.url) as http:
        asked = path.format(place.name)
        answer = await http.request(method, asked)
        told = await http.request(method, asked, headers={"anthropic-version": "2023-06-01"})
    said = f"{method} {asked}: this route takes {allowed}"
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json() == {
        "error": {
            "message": said,
            "type": "invalid_request_error",
            "param": None,
            "code": "MethodNotAllowedError",
        }
    }
    assert told.json()["error"]["message"] == said
    assert told.json()["type"] == "error"


async def test_anthropic_s_client_counts_ids() -> None:
    async with placed() as place, anthropic(place) as client:
        counted = await client.messages.count_tokens(model=MODEL, messages=ASK)
        reply = await client.messages.create(model=MODEL, max_tokens=9, messages=ASK)
    assert counted.input_tokens == reply.usage.input_tokens


async def test_ids_and_logprobs_are_told_where_they_are_asked_for() -> None:
    async with placed() as place, openai(place) as client:
        reply = await client.chat.completions.create(
            model=MODEL,
            messages=ASK,
            logprobs=True,
            extra_body={"return_token_ids": True, "return_meta_info": True},
        )
        (sampled,) = place.engine.replies
    choice = reply.choices[0]
    assert choice.model_extra is not None
    assert choice.model_extra["token_ids"] == list(sampled.completion_ids)
    assert [pair[1] for pair in choice.model_extra["meta_info"]["output_token_logprobs"]] == list(
        sampled.completion_ids
    )
    assert json.loads(reply.model_dump_json())["prompt_token_ids"] == list(sampled.prompt_ids)
