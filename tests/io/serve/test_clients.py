"""The clients that agents really use, over a real socket: fifty turns, and every id is the engine's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from typing import Any

import anyio
import pytest
from anthropic import AsyncAnthropic
from anthropic import NotFoundError as AnthropicNotFoundError
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve.gateway import HELLO, Scripted, Talk, embedded_gateway, talking, user
from tito_core.samples import make_rows
from tito_io.embedded import FaultRates
from tito_io.serve.gateway import GatewayOptions

WHOLE = pytest.mark.whole
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # as uvicorn's
TURNS = 50
ASK: Any = HELLO
LONG: Any = [user("word " * 90)]
TOOLS: Any = [WEATHER]
FUNCTION: Any = WEATHER["function"]
MODEL = "any-name"


@pytest.fixture
async def talk(request: pytest.FixtureRequest) -> AsyncIterator[Talk]:
    """Open a session of a served gateway in front of the embedded engine."""
    async with talking(embedded_gateway(**getattr(request, "param", {})), socket=True) as talk:
        yield talk


def settings(talk: Talk, path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an SDK's client for a path of the gateway."""
    url = f"{str(talk.http.base_url).rstrip('/')}{path}"
    return {"base_url": url, "api_key": "none", "max_retries": 0, **options}


def openai(talk: Talk, path: str | None = None, **options: Any) -> AsyncOpenAI:
    within = f"/sessions/{talk.name}/v1" if path is None else path
    return AsyncOpenAI(**settings(talk, within, options))


def anthropic(talk: Talk, path: str | None = None, **options: Any) -> AsyncAnthropic:
    within = f"/sessions/{talk.name}" if path is None else path
    return AsyncAnthropic(**settings(talk, within, options))


async def check(talk: Talk, turns: int, *, by_messages: int = 1) -> None:
    """Demand that what is kept is what the engine saw and sampled, that it grew, and trains once."""
    session, replies = await talk.session(), talk.engine.replies
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


@pytest.mark.parametrize("thoughts", [pytest.param("echoed", marks=WHOLE), "dropped"])
async def test_openai_s_client_keeps_every_id_through_fifty_turns_with_tools(
    thoughts: str, talk: Talk
) -> None:
    async with openai(talk) as client:
        messages: list[Any] = list(HELLO)
        for _ in range(TURNS):
            reply = await client.chat.completions.create(
                model=MODEL, messages=messages, tools=TOOLS, max_completion_tokens=120
            )
            assert reply.usage is not None
            assert reply.usage.prompt_tokens_details is not None
            said = reply.choices[0].message.model_dump(exclude_none=True)
            if thoughts == "dropped":
                said = {k: v for k, v in said.items() if k in ("role", "content", "tool_calls")}
            messages = [*messages, said, *(results(said.get("tool_calls", [])) or [user()])]
    await check(talk, TURNS)


@pytest.mark.whole
async def test_openai_s_client_keeps_every_id_of_fifty_streamed_turns(talk: Talk) -> None:
    messages: list[Any] = list(HELLO)
    told: list[int] = []
    async with openai(talk) as client:
        for _ in range(TURNS):
            said = await streamed(client, messages, told)
            messages = [*messages, said, *(results(said.get("tool_calls", [])) or [user()])]
    await check(talk, TURNS)
    assert told == [one for reply in talk.engine.replies for one in reply.completion_ids]


@pytest.fixture
async def silent() -> AsyncIterator[Talk]:
    """Open a session of a gateway whose engine is silent through some twenty pings."""
    engine, quick = Scripted(held=anyio.Event()), GatewayOptions(ping_seconds=0.01)

    async def end() -> None:
        await engine.runs()
        await anyio.sleep(0.5)
        engine.go_on()

    async with talking(engine, choices=quick, socket=True) as talk, anyio.create_task_group() as group:
        group.start_soon(end)
        yield talk


@pytest.mark.whole
async def test_openai_s_client_reads_a_chat_through_its_engine_s_silence(silent: Talk) -> None:
    async with openai(silent) as client, client.chat.completions.stream(model=MODEL, messages=ASK) as stream:
        kinds = [event.type async for event in stream]
        said = await stream.get_final_completion()
    assert kinds.count("chunk") > 4
    assert said.choices[0].message.content == "ok"


@pytest.mark.whole
async def test_openai_s_client_reads_a_response_through_its_engine_s_silence(silent: Talk) -> None:
    async with openai(silent) as client, client.responses.stream(model=MODEL, input=ASK) as stream:
        kinds = [event.type async for event in stream]
        said = await stream.get_final_response()
    assert kinds[:3] == ["response.created", *["response.in_progress"] * 2]
    assert said.output_text == "ok"


@pytest.mark.whole
async def test_anthropic_s_client_reads_a_message_through_its_engine_s_silence(silent: Talk) -> None:
    """It keeps pings to itself."""
    asked: Any = {"model": MODEL, "messages": ASK, "max_tokens": 9}
    async with anthropic(silent) as client, client.messages.stream(**asked) as stream:
        said = await stream.get_final_message()
    assert [block.model_dump(include={"text"}) for block in said.content] == [{"text": "ok"}]


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


@pytest.mark.parametrize("talk", [{"fault_rates": FaultRates(malformed=0.0)}], indirect=True)
@pytest.mark.parametrize("stream", [pytest.param(False, marks=WHOLE), True], ids=["whole", "streamed"])
async def test_anthropic_s_client_keeps_every_id_through_fifty_turns_with_tools(
    stream: bool, talk: Talk
) -> None:
    messages: list[Any] = list(HELLO)
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 120, "tools": [TOOL], "system": "Be brief."}
    async with anthropic(talk) as client:
        for _ in range(TURNS):
            if stream:
                async with client.messages.stream(messages=messages, **asked) as events:
                    reply = await events.get_final_message()
            else:
                reply = await client.messages.create(messages=messages, **asked)
            content = [block.model_dump(exclude_none=True) for block in reply.content]
            used = [block["id"] for block in content if block["type"] == "tool_use"]
            answers: Any = [{"type": "tool_result", "tool_use_id": one, "content": "sunny"} for one in used]
            messages = [*messages, {"role": "assistant", "content": content}, user(answers or "more")]
    await check(talk, TURNS)


@pytest.mark.parametrize("named", [pytest.param(False, marks=WHOLE), True], ids=["restated", "by name"])
async def test_openai_s_responses_keep_every_id(named: bool, talk: Talk) -> None:
    items: list[Any] = [user("Where is the bridge?")]
    tool: Any = {"type": "function", **FUNCTION, "strict": False}
    asked: dict[str, Any] = {"model": MODEL, "tools": [tool], "max_output_tokens": 120}
    async with openai(talk) as client:
        for _ in range(20):
            reply = await client.responses.create(input=items, instructions="Be brief.", **asked)
            if named:
                asked["previous_response_id"] = reply.id
            said = [item.model_dump(exclude_none=True) for item in reply.output]
            calls = [item["call_id"] for item in said if item["type"] == "function_call"]
            new: list[Any] = [
                {"type": "function_call_output", "call_id": one, "output": "sunny"} for one in calls
            ]
            items = (new or [user()]) if named else [*items, *said, *(new or [user()])]
    await check(talk, 20)


@pytest.mark.whole
@pytest.mark.parametrize("talk", [{"max_new_tokens": None}], indirect=True)
async def test_forced_calls_and_schemas_keep_every_id(talk: Talk) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Quito"]}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    named = {"type": "function", "function": {"name": "get_weather"}}
    wanted: Any = [{"tool_choice": "required"}, {"tool_choice": named}, {"response_format": form}]
    messages: list[Any] = list(HELLO)
    async with openai(talk) as client:
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
    await check(talk, 12)
    kept = await talk.commits()
    assert [one.origin.request.get("tool_choice") for one in kept[:3]] == ["required", named, None]


async def test_a_session_s_id_as_the_key_names_it(talk: Talk) -> None:
    async with openai(talk, "/v1", api_key=talk.name) as client:
        await client.chat.completions.create(model=MODEL, messages=ASK)
        events = [one async for one in await client.responses.create(model=MODEL, input="hi", stream=True)]
    async with anthropic(talk, "/", api_key=talk.name) as other:
        await other.messages.create(model=MODEL, max_tokens=9, messages=ASK)
    assert [one.origin.dialect for one in await talk.commits()] == ["chat", "responses", "anthropic"]
    assert events[-1].type == "response.completed"


@pytest.mark.parametrize("talk", [{"max_model_len": 64}], indirect=True)
async def test_errors_are_the_clients_own(talk: Talk) -> None:
    async with openai(talk) as client:
        with pytest.raises(BadRequestError) as caught:
            await client.chat.completions.create(model=MODEL, messages=LONG)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(BadRequestError, match="tool_choice"):
            await client.chat.completions.create(model=MODEL, messages=ASK, tool_choice="required")
        listed = await client.models.list()
    assert listed.data[0].id == talk.gateway.turns.model


def asking(client: Any) -> dict[str, Any]:
    """Return calls of a client by method and path."""
    if isinstance(client, AsyncOpenAI):
        return {
            "POST /chat/completions": lambda: client.chat.completions.create(model=MODEL, messages=ASK),
            "POST /responses": lambda: client.responses.create(model=MODEL, input="hi"),
            "GET /models": client.models.list,
        }
    return {
        "POST /v1/messages": lambda: client.messages.create(model=MODEL, max_tokens=9, messages=ASK),
        "POST /v1/messages/count_tokens": lambda: client.messages.count_tokens(model=MODEL, messages=ASK),
        "GET /v1/models": client.models.list,
    }


@pytest.mark.parametrize(
    ("make", "within", "missing"),
    [
        *((openai, within, ["POST /chat/completions", "POST /responses"]) for within in ("", "/v1/v1")),
        *((openai, within, None) for within in ("/sessions/nope/v1", "/nowhere/v1")),
        *((anthropic, within, None) for within in ("/v1", "/nowhere", "/sessions/nope")),
    ],
)
async def test_a_wrong_base_url_or_session_is_told_to_clients(
    make: Any, within: str, missing: list[str] | None, talk: Talk
) -> None:
    lost = within.startswith("/sessions/nope")
    base = within if lost else f"/sessions/{talk.name}{within}"
    async with make(talk, base) as client:
        for asked, call in asking(client).items():
            if missing is not None and asked not in missing:
                continue
            with pytest.raises((NotFoundError, AnthropicNotFoundError)) as caught:
                await call()
            told: Any = caught.value
            body = told.body
            error, kind = (body, "") if isinstance(client, AsyncOpenAI) else (body["error"], body["type"])
            assert (error["type"], kind) == ("not_found_error", "error" if make is anthropic else "")
            method, path = asked.split()
            words = (
                f"{method} {base}{path}: there is no such route; the base URL is http://HOST:PORT/sessions/ID"
            )
            gone = "session not found: session_id=nope; there is no such session. An id has "
            assert error["message"].startswith(gone if lost else words)


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
async def test_a_wrong_method_is_refused_with_the_right_ones(
    method: str, path: str, allowed: str, talk: Talk
) -> None:
    asked = path.format(talk.name)
    answer = await talk.http.request(method, asked)
    of_anthropic = await talk.http.request(method, asked, headers={"anthropic-version": "2023-06-01"})
    said = f"{method} {asked}: this route takes {allowed}"
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    kind, code = "invalid_request_error", "method_not_allowed"
    if "/v1/" in path:
        assert answer.json() == {"error": {"message": said, "type": kind, "param": None, "code": code}}
        assert (of_anthropic.json()["error"]["message"], of_anthropic.json()["type"]) == (said, "error")
    else:  # a route of the gateway's own has one form, whoever asks
        assert answer.json() == of_anthropic.json() == {"error": said, "code": code}


async def test_anthropic_s_client_counts_ids(talk: Talk) -> None:
    async with anthropic(talk) as client:
        counted = await client.messages.count_tokens(model=MODEL, messages=ASK)
        reply = await client.messages.create(model=MODEL, max_tokens=9, messages=ASK)
    assert counted.input_tokens == reply.usage.input_tokens
