"""A gateway that is killed in the middle of its work has lost nothing that a client received."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tests.io.embedded_client import WEATHER
from tests.io.gateway import HELLO, opened, user
from tests.io.gateway_process import Process, started
from tests.io.redis_server import redis_server, wanted

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
SESSIONS = 6
KINDS = ["sqlite", *(["redis"] if wanted() else [])]


@attrs.define
class Agent:
    """An agent that keeps what it received: the conversation, and the ids of its turns."""

    name: str
    messages: list[Any] = attrs.field(factory=lambda: list(HELLO))
    received: list[tuple[str, list[int], list[int]]] = attrs.field(factory=list)
    """Response id, prompt ids, sampled ids."""

    async def turn(self, http: httpx2.AsyncClient) -> None:
        answer = await http.post(
            f"/sessions/{self.name}/v1/chat/completions",
            json={
                "messages": self.messages,
                "tools": [WEATHER],
                "max_tokens": 40,
                "return_token_ids": True,
            },
        )
        assert answer.status_code == 200, answer.text
        body = answer.json()
        choice = body["choices"][0]
        self.received.append((body["id"], body["prompt_token_ids"], choice["token_ids"]))
        message = choice["message"]
        calls = message.get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": one["id"], "content": "sunny"} for one in calls]
        self.messages = [*self.messages, message, *(results or [user()])]

    async def talk(self, http: httpx2.AsyncClient) -> None:
        """Talk until the gateway is gone."""
        try:
            while True:
                await self.turn(http)
        except httpx2.RequestError:
            return


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'sessions.db'}"
        return
    with redis_server() as url:
        yield url


async def run(process: Process, agents: list[Agent], turns: int) -> None:
    """Let agents talk, and kill the gateway in the middle of it."""
    limits = httpx2.Limits(max_connections=SESSIONS)
    async with httpx2.AsyncClient(base_url=process.url, limits=limits, timeout=60) as http:
        for agent in agents:
            agent.name = agent.name or await opened(http)
        goal = sum(len(agent.received) for agent in agents) + turns
        async with anyio.create_task_group() as group:
            for agent in agents:
                group.start_soon(agent.talk, http)
            while sum(len(agent.received) for agent in agents) < goal:  # noqa: ASYNC110  # nobody tells
                await anyio.sleep(0.002)
            process.kill()


async def test_no_received_turn_is_lost_by_a_kill_and_sessions_go_on(store: str) -> None:
    agents = [Agent("") for _ in range(SESSIONS)]
    for _ in range(2):
        with started("--store", store) as process:
            await run(process, agents, 40)
    with started("--store", store) as process:
        async with httpx2.AsyncClient(base_url=process.url, timeout=60) as http:
            for agent in agents:
                shown = (await http.get(f"/sessions/{agent.name}")).json()
                nodes = {node["response_id"] for node in shown["metadata"]["tree"]["nodes"]}
                assert {name for name, _, _ in agent.received} <= nodes
                assert len(nodes) - len(agent.received) in (0, 1, 2)  # stored, and killed before it was sent
                before = agent.received[-1]
                await agent.turn(http)
                after = agent.received[-1]
                assert after[1][: len(before[1]) + len(before[2])] == before[1] + before[2]
                records = (await http.get(f"/sessions/{agent.name}")).json()["records"]
                kept = {one["response"]["id"]: one for one in records}
                for name, prompt, sampled in agent.received:
                    assert kept[name]["request"]["input_ids"] == prompt
                    pairs = kept[name]["response"]["choices"][0]["meta_info"]["output_token_logprobs"]
                    assert [pair[1] for pair in pairs] == sampled
        assert process.stop() == 0


async def test_a_gateway_that_is_told_to_stop_ends_what_is_in_flight(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    agents = [Agent("") for _ in range(3)]
    with started("--store", store) as process:
        async with httpx2.AsyncClient(base_url=process.url, timeout=60) as http:
            for agent in agents:
                agent.name = await opened(http)
            async with anyio.create_task_group() as group:
                for agent in agents:
                    group.start_soon(agent.turn, http)
                await anyio.sleep(0.02)
                process.process.terminate()
        assert process.process.wait(30) == 0
    assert all(len(agent.received) == 1 for agent in agents)
    with started("--store", store) as process:
        async with httpx2.AsyncClient(base_url=process.url, timeout=60) as http:
            for agent in agents:
                shown = (await http.get(f"/sessions/{agent.name}")).json()
                assert [one["response"]["id"] for one in shown["records"]] == [agent.received[0][0]]
