"""The Dynamo adapter against a real frontend, and a mocker that says what it is told to.

No model samples here, so there are no log-probabilities and no `engine_data`; all else is the real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.engines.conftest import asked_for
from tests.engines.dynamo import MOCKER_CONTEXT, Deployment, mocker, scripts
from tests.engines.talk import WEATHER
from tests.environment import Say
from tests.io.engines.dynamo.dynamo_server import COMMON, KNOWN, NVEXT
from tito_core import InputError, Message
from tito_io.engines.dynamo import COMPLETIONS, Dynamo
from tito_io.engines.dynamo.requests import REJECTED, Route
from tito_io.engines.http_engine import ServedModel
from tito_io.engines.protocol import (
    Delta,
    EngineError,
    InvalidReplyError,
    ModelLimits,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    ServerError,
    UnsupportedError,
)
from tito_io.families.family import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

ROUTES: tuple[Route, ...] = ("chat", "completions")
HELLO = [{"role": "user", "content": "Say hello."}]
SAID = ("end", "letters", "call", "cut call", "thought", "nothing")


@pytest.fixture(scope="module")
def family(dynamo_mocker: Deployment) -> Family:
    """Load the described model's folder."""
    return Family.load(dynamo_mocker.family)


@pytest.fixture(scope="module")
def said(dynamo_mocker: Deployment) -> dict[str, list[int]]:
    """Return the ids of each script."""
    return scripts(dynamo_mocker.family)


def scripted(name: str, **more: Any) -> Sampling:
    """Ask for a script."""
    return Sampling(max_tokens=1000, extra={"nvext": {"annotations": [f"output_replay_id:{name}"]}}, **more)


async def turn(
    server: Deployment, ids: list[int], sampling: Sampling, *, streamed: bool = False, **options: Any
) -> tuple[Reply, list[Delta]]:
    """Return a turn's reply, and what was told of it on the way."""
    seen: list[Delta] = []

    async def watch(delta: Delta) -> None:
        seen.append(delta)

    async with Dynamo(server.base_url, logprobs=False, **options) as engine:
        told = watch if streamed else None
        return await engine.from_ids(ids, sampling, Rendering(tools=(WEATHER,)), watch=told), seen


@pytest.fixture(scope="module")
def prompt(family: Family) -> list[int]:
    """Return a conversation's ids."""
    return family.ids(HELLO, add_generation_prompt=True)


async def test_the_frontend_is_what_it_says(dynamo_mocker: Deployment, family: Family) -> None:
    async with Dynamo(dynamo_mocker.base_url + "/v1", family=family) as engine:
        assert await engine.models() == (ServedModel(dynamo_mocker.model, MOCKER_CONTEXT, owner="nvidia"),)
        assert await engine.limits() == ModelLimits(
            max_model_len=MOCKER_CONTEXT, vocab_size=family.vocab_size
        )


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", SAID)
async def test_every_scripted_id_comes_back(
    dynamo_mocker: Deployment,
    prompt: list[int],
    said: dict[str, list[int]],
    name: str,
    route: Route,
    streamed: bool,
) -> None:
    reply, seen = await turn(dynamo_mocker, prompt, scripted(name), streamed=streamed, route=route)
    assert list(reply.prompt_ids) == prompt
    assert list(reply.completion_ids) == said[name]
    assert reply.finish_reason == ("length" if name == "cut call" else "stop")
    if streamed:
        assert [index for delta in seen for index in delta.ids] == said[name]
        assert "".join(delta.text for delta in seen) == reply.text


@pytest.mark.parametrize("streamed", [False, True])
async def test_messages_are_made_of_completions_ids(
    dynamo_mocker: Deployment, prompt: list[int], family: Family, streamed: bool
) -> None:
    options: dict[str, Any] = {"route": "completions", "family": family, "streamed": streamed}
    reply, _ = await turn(dynamo_mocker, prompt, scripted("call"), **options)
    assert reply.message is not None
    (call,) = reply.message["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city":  "Ulm"}'}
    assert reply.finish_reason == "tool_calls"
    reply, _ = await turn(dynamo_mocker, prompt, scripted("thought"), **options)
    assert reply.message == {"role": "assistant", "content": "yes", "reasoning": "hm"}
    reply, _ = await turn(dynamo_mocker, prompt, scripted("cut call"), **options)
    assert reply.message == {"role": "assistant", "content": 'So: <tool_call>\n{"name": "get_wea'}


async def test_without_a_folder_a_completion_is_its_text(
    dynamo_mocker: Deployment, prompt: list[int]
) -> None:
    reply, _ = await turn(dynamo_mocker, prompt, scripted("end"), route="completions")
    assert (reply.message, reply.text) == (None, "hello")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("route", ROUTES)
async def test_a_stop_string_cuts_the_text_and_no_id(
    dynamo_mocker: Deployment, prompt: list[int], family: Family, route: Route, streamed: bool
) -> None:
    letters = family.encode("h") + family.encode("e") + family.encode("l")
    sampling = scripted("letters", stop=("el",))
    for options in ({}, {"family": family}):
        reply, _ = await turn(dynamo_mocker, prompt, sampling, streamed=streamed, route=route, **options)
        assert list(reply.completion_ids) == letters
        assert (reply.text, reply.finish_reason, reply.stop_reason) == ("h", "stop", "el")
        if options:
            assert reply.message is not None
            assert reply.message["content"] == "h"


async def test_log_probabilities_that_do_not_come_are_refused(
    dynamo_mocker: Deployment, prompt: list[int]
) -> None:
    async with Dynamo(dynamo_mocker.base_url) as engine:
        with pytest.raises(InvalidReplyError, match="logprobs=False"):
            await engine.from_ids(prompt, scripted("end"))


@pytest.mark.parametrize("tools", [(), (WEATHER,)])
async def test_the_frontend_renders_as_the_family_does(
    dynamo_mocker: Deployment, family: Family, tools: tuple[Any, ...]
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Ulm"}}}
    messages: list[Message] = [
        {"role": "system", "content": "Be brief."},
        *HELLO,
        {"role": "assistant", "content": "So:", "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "rain\n"},
    ]
    rendering = Rendering(tools=tools, template_args={"thinking": True})
    async with Dynamo(dynamo_mocker.base_url, family=family, logprobs=False) as engine:
        rendered = await engine.render(messages, rendering, add_generation_prompt=True)
        reply = await engine.from_messages(messages, rendering, Sampling(max_tokens=1))
    assert list(reply.prompt_ids) == rendered
    assert rendered == family.ids(messages, tools=tools or None, add_generation_prompt=True, thinking=True)


async def test_a_frontend_writes_a_late_system_message_as_a_users(
    dynamo_mocker: Deployment, family: Family
) -> None:
    """What this template would refuse. The ids that come back say so, whatever the messages were."""
    late = [*HELLO, {"role": "system", "content": "Be brief."}]
    as_user = [*HELLO, {"role": "user", "content": "Be brief."}]
    async with Dynamo(dynamo_mocker.base_url, logprobs=False) as engine:
        reply = await engine.from_messages(late, Rendering(), Sampling(max_tokens=1))
    assert list(reply.prompt_ids) == family.ids(as_user, add_generation_prompt=True)


async def test_a_frontend_fills_in_what_a_tool_leaves_out(dynamo_mocker: Deployment, family: Family) -> None:
    """A family renders tools as they are, so tools that leave nothing out are rendered alike by both."""
    bare = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    full = {"name": "f", "parameters": {"type": "object", "properties": {}}, "description": ""}
    async with Dynamo(dynamo_mocker.base_url, logprobs=False) as engine:
        reply = await engine.from_messages(HELLO, Rendering(tools=(bare,)), Sampling(max_tokens=1))
    tools = [{"type": "function", "function": full}]
    assert list(reply.prompt_ids) == family.ids(HELLO, tools=tools, add_generation_prompt=True)


async def test_a_frontend_renders_nothing_for_others(dynamo_mocker: Deployment) -> None:
    async with Dynamo(dynamo_mocker.base_url) as engine:
        with pytest.raises(UnsupportedError, match="family"):
            await engine.render(HELLO, Rendering(), add_generation_prompt=True)


async def test_errors_are_what_they_amount_to(
    dynamo_mocker: Deployment, prompt: list[int], family: Family
) -> None:
    async with Dynamo(dynamo_mocker.base_url, family=family, logprobs=False) as engine:
        with pytest.raises(OverlongError, match="Nothing was sent"):
            await engine.from_ids([5] * MOCKER_CONTEXT, Sampling(max_tokens=1))
        with pytest.raises(InputError):
            await engine.from_ids([family.vocab_size], Sampling(max_tokens=1))
        with pytest.raises(RequestError, match="400"):
            await engine.from_ids(prompt, Sampling(max_tokens=1, temperature=3.0))
        with pytest.raises(RequestError, match="400"):
            await engine.from_ids(prompt, Sampling(max_tokens=1, stop=("x",) * 33))
    async with Dynamo(dynamo_mocker.base_url, model="nope") as engine:
        with pytest.raises(RequestError, match="404"):
            await engine.from_ids(prompt, Sampling(max_tokens=1))


VALUES: dict[str, Any] = {
    **dict.fromkeys(("temperature", "min_p", "top_p", "repetition_penalty", "frequency_penalty"), 0.5),
    **dict.fromkeys(("top_k", "seed", "min_tokens", "presence_penalty", "thinking_token_budget"), 1),
    **dict.fromkeys(("ignore_eos", "skip_special_tokens", "include_stop_str_in_output", "detokenize"), True),
    **dict.fromkeys(("return_tokens_as_token_ids", "parallel_tool_calls", "store"), True),
    **{name: [5] for name in ("stop_token_ids", "allowed_token_ids", "logprob_token_ids")},
    "response_format": {"type": "text"},
    "bad_words_token_ids": [[5]],
    "tool_choice": "none",
    "reasoning_effort": "low",
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "user": "me",
    "stop": ["x"],
}
"""A value for each key that the frontend looks at."""


def _asks(client: httpx2.Client, server: Deployment, route: str, **more: Any) -> httpx2.Response:
    body: dict[str, Any] = {"model": server.model, "max_tokens": 2, **more}
    chat = {"messages": [{"role": "user", "content": "x"}]}
    body |= {"prompt": [5]} if route == COMPLETIONS else chat
    return client.post(server.base_url + route, json=body)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    """Lend one client to all that asks for itself."""
    with httpx2.Client(trust_env=False, timeout=20) as client:
        yield client


@pytest.mark.parametrize("route", sorted(KNOWN))
def test_the_stand_in_knows_the_keys_that_the_frontend_knows(
    client: httpx2.Client, dynamo_mocker: Deployment, route: str
) -> None:
    """What the tests' own Dynamo takes, the real one takes, and what it refuses is refused."""
    assert set(VALUES) - COMMON <= KNOWN["/v1/chat/completions"]
    for name, value in VALUES.items():
        refused = "Unsupported parameter" in _asks(client, dynamo_mocker, route, **{name: value}).text
        assert refused == (name not in KNOWN[route]), name
    for name in REJECTED.keys() - KNOWN[route]:
        assert "Unsupported parameter" in _asks(client, dynamo_mocker, route, **{name: 1}).text, name


def test_the_stand_in_knows_the_extensions_that_the_frontend_knows(
    client: httpx2.Client, dynamo_mocker: Deployment
) -> None:
    told = _asks(client, dynamo_mocker, COMPLETIONS, nvext={"no_such": 1}).text
    assert {name for name in NVEXT if f"`{name}`" in told} == NVEXT


async def test_mapped_keys_are_taken(dynamo_mocker: Deployment, prompt: list[int]) -> None:
    extra = {
        "priority": 2,
        "cache_salt": "a",
        "return_token_ids": True,
        "structured_outputs": {"regex": "a+"},
    }
    for route in ROUTES:
        reply, _ = await turn(dynamo_mocker, prompt, Sampling(max_tokens=2, extra=extra), route=route)
        assert len(reply.completion_ids) == 2


# What ends badly: each has a deployment of its own, which starts in a second.


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return where a deployment of one test logs."""
    return tmp_path / "dynamo"


@pytest.fixture
def hush() -> Say:
    """Say nothing: these start at once."""
    asked_for("dynamo-mocker")
    return lambda _: None


async def test_a_killed_worker_leaves_what_was_received(logs: Path, hush: Say) -> None:
    with mocker(hush, logs) as server:
        long, seen = scripts(server.family)["long"], 0

        async def watch(delta: Delta) -> None:
            nonlocal seen
            seen += len(delta.ids)
            if seen == 5:
                server.workers[0].kill()

        async with Dynamo(server.base_url, logprobs=False) as engine:
            with pytest.raises(ServerError) as caught:
                await engine.from_ids([5, 6], scripted("long"), watch=watch)
            partial = caught.value.partial
            assert partial is not None
            assert partial.prompt_ids == (5, 6)
            assert 5 <= seen == len(partial.completion_ids) < len(long)
            assert list(partial.completion_ids) == long[:seen]
            assert partial.finish_reason == "abort"
            with pytest.raises(ServerError):
                await engine.from_ids([5, 6], Sampling(max_tokens=2))


async def test_dynamo_trap_02_a_migrated_turn_is_never_taken_for_another(logs: Path, hush: Say) -> None:
    """Two workers, and one of them dies: the mocker proves nothing by `engine_data`, so it is an error."""
    with mocker(hush, logs, "--migration-limit=3", workers=2) as server:
        ends: list[Reply | EngineError] = []
        began = anyio.Event()

        async def watch(_: Delta) -> None:
            began.set()

        async def sample(engine: Dynamo) -> None:
            try:
                ends.append(await engine.from_ids([5, 6], Sampling(max_tokens=100), watch=watch))
            except EngineError as error:
                ends.append(error)

        async with Dynamo(server.base_url, logprobs=False) as engine, anyio.create_task_group() as tasks:
            tasks.start_soon(sample, engine)
            tasks.start_soon(sample, engine)
            await began.wait()
            await anyio.sleep(0.2)
            server.workers[0].kill()
        (whole,) = [end for end in ends if isinstance(end, Reply)]
        (moved,) = [end for end in ends if isinstance(end, InvalidReplyError)]
        assert len(whole.completion_ids) == 100
        assert moved.partial is not None
        assert len(moved.partial.completion_ids) == 100, "nothing that was sampled is lost"


@pytest.mark.parametrize("streamed", [False, True])
async def test_dynamo_trap_03_a_frontend_told_to_drop_extensions_is_found_out(
    logs: Path, hush: Say, streamed: bool
) -> None:
    with (
        mocker(hush, logs, settings={"DYN_DISABLE_FRONTEND_NVEXT": "1"}) as server,
        pytest.raises(InvalidReplyError, match="drops `nvext`"),
    ):
        await turn(server, [5, 6], Sampling(max_tokens=2), streamed=streamed)
