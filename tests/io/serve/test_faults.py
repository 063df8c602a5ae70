"""What was seen to go wrong in another session server, one test each: it does not go wrong here."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import httpx2
import orjson
import pytest

from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve.gateway import (
    HELLO,
    Scripted,
    chat,
    client,
    embedded_gateway,
    opened,
    scripted_gateway,
    served,
    user,
)
from tito_core import Policy, Truncated
from tito_core.samples import make_rows
from tito_io.embedded import TIDY
from tito_io.engines.protocol import Delta, EngineError, Reply, Sampling, ServerError, Watch
from tito_io.serve.app import app
from tito_io.serve.gateway import Gateway, GatewayOptions
from tito_io.serve.refusals import GatewayLimits
from tito_io.serve.session import Session
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"


def said(answer: Any) -> Any:
    return answer["choices"][0]["message"]


async def session_of(gateway: Gateway, name: str) -> Session:
    async with gateway.sessions.using(name) as session:
        return session


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }


@pytest.mark.parametrize("role", ["user", "tool", "developer"])
async def test_session_fault_01_text_parts_and_developers_do_not_vanish(role: str) -> None:
    """The embedded template writes nothing for content parts, and fails on developers."""
    gateway = embedded_gateway(fault_rates=TIDY)
    parts = [{"type": "text", "text": "zweifel"}, {"type": "text", "text": "apricot"}]
    message = {"role": role, "content": parts, **({"tool_call_id": "a"} if role == "tool" else {})}
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, [message, user()] if role != "tool" else HELLO)
        if role == "tool":
            await chat(http, name, [*HELLO, said(first), message])
        session = await session_of(gateway, name)
    assert session.newest is not None
    assert gateway.decode is not None
    text = gateway.decode(session.newest.step.prompt_ids.tolist())
    assert "zweifel\napricot" in text


@pytest.mark.parametrize("arguments", ["", '{"city": ', "[1", '{"a": NaN}'])
async def test_session_fault_02_malformed_arguments_do_not_stop_a_session(arguments: str) -> None:
    gateway = embedded_gateway(fault_rates=TIDY)
    result = {"role": "tool", "tool_call_id": "a", "content": "sunny"}
    async with client(gateway) as http:
        name = await opened(http)
        messages = [*HELLO, call(arguments), result]
        path = f"/sessions/{name}{CHAT}"
        answer = await http.post(path, json={"messages": messages, "tools": [WEATHER]})
        assert answer.status_code in (200, 400), answer.text  # a template may refuse what it cannot write
        again = await chat(http, name, HELLO, tools=[WEATHER])
        await chat(http, name, [*HELLO, said(again), user()], tools=[WEATHER])
        session = await session_of(gateway, name)
    assert [node.kind.name for node in session.forest.nodes][-1] == "CONTINUES"


async def test_session_fault_02_a_sampled_call_that_is_malformed_is_continued() -> None:
    """The engine's own malformed call comes back as it was said."""
    engine = Scripted()
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        broken = {**call("{broken"), "content": said(first)["content"]}
        answer = await http.post(f"/sessions/{name}{CHAT}", json={"messages": [*HELLO, broken, user()]})
        assert answer.status_code == 200
        await chat(http, name, [*HELLO, said(first), user()])


async def test_session_fault_03_changed_tools_are_rendered() -> None:
    gateway = embedded_gateway(fault_rates=TIDY)
    other = {"type": "function", "function": {"name": "buy_stamps", "parameters": {"type": "object"}}}
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO, tools=[WEATHER], tool_choice="auto")
        messages = [*HELLO, {**said(first), "tool_calls": []}, user()]
        if said(first).get("tool_calls"):
            results = [
                {"role": "tool", "tool_call_id": one["id"], "content": "sunny"}
                for one in said(first)["tool_calls"]
            ]
            messages = [*HELLO, said(first), *results]
        await chat(http, name, messages, tools=[WEATHER, other])
        session = await session_of(gateway, name)
    assert session.newest is not None
    assert gateway.decode is not None
    assert "buy_stamps" in gateway.decode(session.newest.step.prompt_ids.tolist())
    assert session.newest.origin.refusal == "RENDERED_DIFFERENTLY"


@pytest.mark.parametrize("refuse", [False, True])
async def test_session_fault_04_a_cut_turn_is_closed_before_the_next(refuse: bool) -> None:
    engine = Scripted(finish="length")
    policy = Policy(truncated=Truncated.REFUSE if refuse else Truncated.CLOSE)
    gateway = scripted_gateway(engine, choices=GatewayOptions(policy=policy))
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        engine.finish = "stop"
        await chat(http, name, [*HELLO, said(first), user()])
        session = await session_of(gateway, name)
        shown = await http.get(f"/sessions/{name}")
    cut, after = session.commits.values()
    prompt = after.step.prompt_ids.tolist()
    if refuse:
        assert after.origin.refusal == "TRUNCATED"
        return
    whole = cut.step.ids.tolist()
    assert prompt[: len(whole) + 2] == [*whole, 2, 1]
    assert after.step.ledger.mask()[len(whole)] == 0  # the close is not trained
    assert shown.json()["metadata"]["tree"]["nodes"][1]["parent"] == cut.name


async def test_session_fault_05_a_retry_while_a_later_turn_is_in_flight_harms_neither() -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        second_prompt = [*HELLO, said(first), user("two")]
        second = await chat(http, name, second_prompt)
        third_prompt = [*second_prompt, said(second), user("three")]
        engine.held = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(chat, http, name, third_prompt)
            group.start_soon(chat, http, name, second_prompt)
            while engine.running < 2:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.001)
            engine.held.set()
        session = await session_of(gateway, name)
    forest = session.forest
    assert len(forest) == 4
    assert sorted(node.kind.name for node in forest.nodes) == [
        "CONTINUES",
        "CONTINUES",
        "RETRIES",
        "UNRELATED",
    ]
    third = next(one for one in session.commits.values() if len(one.step.prompt) == 5)
    second_ids = session.response(second["id"])
    assert second_ids is not None
    assert third.step.prompt_ids.starts_with(second_ids.step.ids)


@pytest.mark.parametrize(
    "failure",
    [ServerError("POST http://engine answered 500"), EngineError("odd")],
)
async def test_session_fault_06_a_failed_retry_loses_no_committed_turn(failure: EngineError) -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        prompt = [*HELLO, said(first), user()]
        second = await chat(http, name, prompt)
        before = (await http.get(f"/sessions/{name}")).json()
        engine.raises = [failure]
        assert (await http.post(f"/sessions/{name}{CHAT}", json={"messages": prompt})).status_code >= 500
        after = (await http.get(f"/sessions/{name}")).json()
        assert after == before
        await chat(http, name, [*prompt, said(second), user()])
        assert engine.asked[-1][0] == "ids"


async def test_session_fault_07_a_failure_moves_nothing_and_siblings_are_all_kept() -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        answers: list[Any] = []

        async def one() -> None:
            answers.append(await chat(http, name, HELLO))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(one)
        engine.raises = [ServerError("no")]
        await http.post(f"/sessions/{name}{CHAT}", json={"messages": [user("else")]})
        shown = (await http.get(f"/sessions/{name}")).json()
    tree = shown["metadata"]["tree"]
    assert len(tree["nodes"]) == len(tree["leaves"]) == 5
    assert {node["response_id"] for node in tree["nodes"]} == {answer["id"] for answer in answers}


async def test_session_fault_07_a_first_turn_s_retry_trains_once_each() -> None:
    gateway = scripted_gateway(Scripted())
    async with client(gateway) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
        await chat(http, name, HELLO)
        session = await session_of(gateway, name)
    rows = make_rows(session.forest).rows
    trained = [i for row in rows for i, mask in zip(row.ids, row.loss_mask, strict=True) if mask and i != 2]
    assert sorted(trained) == [500, 501, 502, 503]


async def test_session_fault_08_other_tool_ids_branch_and_spellings_do_not() -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        tool = {"role": "tool", "tool_call_id": "a", "content": "x"}
        prompt = [*HELLO, said(first), tool]
        second = await chat(http, name, prompt)
        asked = [*prompt, said(second), user()]
        await chat(http, name, asked)
        assert engine.asked[-1][0] == "ids"
        echoed = {"role": "assistant", "content": [{"type": "text", "text": said(second)["content"]}]}
        await chat(http, name, [*prompt, echoed, user()])
        assert engine.asked[-1][0] == "ids"  # a part is its text
        other = [*HELLO, said(first), {**tool, "tool_call_id": "b"}, said(second), user()]
        await chat(http, name, other)
        session = await session_of(gateway, name)
    assert session.newest is not None
    # the renamed result is no part of the second turn: it goes on from the first
    assert len(session.path(session.newest)) == 2


async def test_session_fault_08_a_trailing_newline_or_an_alias_is_forgiven_by_name() -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        echoed = {"role": "assistant", "content": said(first)["content"] + "\n"}
        await chat(http, name, [*HELLO, echoed, user()])
        session = await session_of(gateway, name)
    assert engine.asked[-1][0] == "ids"
    assert session.newest is not None
    assert "OUTER_WHITESPACE" in session.newest.origin.forgiven
    assert b'tito_forgiven_total{name="outer-whitespace"} 1.0' in gateway.metrics.text()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[1]", 400),
        (b'{"messages": null}', 400),
        (b'{"messages": []}', 400),
        (b'{"messages": [1]}', 400),
        (b'{"messages": [{"content": "x"}]}', 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"messages": [{"role": "user", "content": "x"}], "n": 0}', 400),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}', 400),
        (b"", 400),
    ],
)
async def test_session_fault_09_malformed_bodies_are_refused_in_words(body: bytes, status: int) -> None:
    async with client(scripted_gateway(Scripted())) as http:
        name = await opened(http)
        answer = await http.post(f"/sessions/{name}{CHAT}", content=body)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["message"]
        assert (await http.get(f"/sessions/{name}")).json()["records"] == []


async def test_session_fault_09_the_node_cap_is_told_and_every_choice_is_recorded() -> None:
    gateway = scripted_gateway(Scripted(), choices=GatewayOptions(limits=GatewayLimits(nodes=3)))
    async with client(gateway) as http:
        name = await opened(http)
        answer = await chat(http, name, HELLO, n=2)
        assert len(answer["choices"]) == 2
        await chat(http, name, HELLO)
        refused = await http.post(f"/sessions/{name}{CHAT}", json={"messages": HELLO})
        session = await session_of(gateway, name)
    assert refused.status_code == 429
    assert "--max-nodes" in refused.json()["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"
    assert len(session.commits) == 3


async def test_session_fault_09_a_500_tells_nothing_of_the_conversation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Scripted(raises=[RuntimeError("secret apricot")])
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        answer = await http.post(f"/sessions/{name}{CHAT}", json={"messages": [user("zweifel")]})
    assert answer.status_code == 500
    assert "RuntimeError" in answer.text
    for text in (answer.text, caplog.text):
        assert "apricot" not in text
        assert "zweifel" not in text


async def test_session_fault_10_idle_sessions_end_and_the_rest_is_capped() -> None:
    now = [0.0]
    store = MemoryStore(clock=lambda: now[0])
    gateway = scripted_gateway(
        Scripted(), store, GatewayOptions(limits=GatewayLimits(sessions=2, idle_seconds=60))
    )
    async with client(gateway) as http:
        names = [await opened(http), await opened(http)]
        full = await http.post("/sessions")
        assert full.status_code == 429
        assert "--max-sessions" in full.json()["error"]
        named: dict[str, Any] = {"headers": {"Authorization": "Bearer another"}, "json": {"messages": HELLO}}
        assert (await http.post(CHAT, **named)).status_code == 429
        now[0] = 61
        await gateway.sessions._sweep()
        gone = await http.get(f"/sessions/{names[0]}")
        assert (gone.status_code, gone.json()["error"][:17]) == (404, "session not found")
        await opened(http)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
@pytest.mark.parametrize("stream", [False, True])
async def test_session_fault_10_a_client_that_goes_away_commits_nothing(stream: bool) -> None:
    engine = Scripted(held=anyio.Event())
    gateway = scripted_gateway(engine)
    async with served(app(gateway)) as url, httpx2.AsyncClient(base_url=url) as http:
        name = await opened(http)
        with anyio.move_on_after(0.2) as scope:
            await http.post(f"/sessions/{name}{CHAT}", json={"messages": HELLO, "stream": stream})
        assert scope.cancelled_caught
        with anyio.fail_after(5):
            while engine.running:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.005)
        assert engine.cancelled == 1
        assert engine.held is not None
        engine.held.set()
        answer = await chat(http, name, HELLO)  # the retry does not diverge: it is the only turn
        shown = (await http.get(f"/sessions/{name}")).json()
    assert [node["response_id"] for node in shown["metadata"]["tree"]["nodes"]] == [answer["id"]]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
async def test_session_fault_11_a_stream_comes_as_it_is_sampled() -> None:
    engine = Scripted(steps=anyio.Event(), text="hello")
    async with served(app(scripted_gateway(engine))) as url, httpx2.AsyncClient(base_url=url) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        body = {"messages": [*HELLO, said(first), user()], "stream": True}
        async with http.stream("POST", f"/sessions/{name}{CHAT}", json=body) as answer:
            lines = answer.aiter_lines()
            seen = ""
            with anyio.fail_after(5):
                while '"content":"h"' not in seen:
                    seen += await anext(lines)
            assert engine.running == 1  # and the rest is not sampled yet
            assert engine.steps is not None
            engine.steps.set()
            rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"stop"' in "".join(rest)


@attrs.define
class Thoughtful(Scripted):
    """An engine whose prompts leave reasoning open."""

    async def _sampled(self, prompt: list[int], sampling: Sampling, watch: Watch | None) -> Reply:
        if watch is not None:
            for text in ("hm", "</think>", "ok"):
                await watch(Delta(ids=(900,), text=text, thinking=True))
        message = {"role": "assistant", "content": "ok", "reasoning": "hm"}
        return attrs.evolve(await super()._sampled(prompt, sampling, None), message=message)


async def test_a_stream_begins_with_the_reasoning_that_its_prompt_left_open() -> None:
    async with client(scripted_gateway(Thoughtful())) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        body = {"messages": [*HELLO, said(first), user()], "stream": True}
        answer = await http.post(f"/sessions/{name}{CHAT}", json=body)
    chunks = [orjson.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "hm"
    assert "".join(delta.get("content") or "" for delta in deltas) == "ok"
