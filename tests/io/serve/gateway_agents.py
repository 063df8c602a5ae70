"""An agent that talks to a gateway which is killed and begun again, and remembers what it was told."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import httpx2

from benchmarks.gateway.agents import streamed_answer, whole_answer
from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve.gateway import CHAT, HELLO, user


@attrs.frozen
class Received:
    """A turn that an agent has received whole."""

    response: str
    prompt: list[int]
    sampled: list[int]


@attrs.define
class Agent:
    """An agent in a session; what it did not receive it asks for again."""

    name: str
    stream: bool = False
    messages: list[Any] = attrs.field(factory=lambda: list(HELLO))
    received: list[Received] = attrs.field(factory=list)
    strays: int = 0
    """Turns whose prompt did not begin with the ids of the turn before."""

    async def turn(self, http: httpx2.AsyncClient) -> None:
        """Take a turn; raises httpx2's errors."""
        body = {"messages": self.messages, "tools": [WEATHER], "max_tokens": 24, "return_token_ids": True}
        answer = await http.post(f"/sessions/{self.name}{CHAT}", json={**body, "stream": self.stream})
        assert answer.status_code == 200, answer.text
        if self.stream:
            name = answer.text.partition('"id":"')[2].partition('"')[0]
            prompt, ids, message = streamed_answer(answer.text)
        else:
            name, (prompt, ids, message) = answer.json()["id"], whole_answer(answer.json())
        if self.received:
            before = self.received[-1]
            kept = before.prompt + before.sampled
            self.strays += prompt[: len(kept)] != kept
        self.received.append(Received(name, prompt, ids))
        calls = message.get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": one["id"], "content": "sunny"} for one in calls]
        self.messages = [*self.messages, message, *(results or [user()])]

    async def check(self, http: httpx2.AsyncClient) -> None:
        """Demand that there is every turn that was received, and no other, with just its ids, and go on."""
        shown = (await http.get(f"/sessions/{self.name}")).json()
        nodes = [node["response_id"] for node in shown["metadata"]["tree"]["nodes"]]
        assert sorted(one.response for one in self.received) == sorted(nodes)
        await self.turn(http)
        assert self.strays == 0
        records = (await http.get(f"/sessions/{self.name}")).json()["records"]
        kept = {one["response"]["id"]: one for one in records}
        for one in self.received:
            record = kept[one.response]
            assert record["request"]["input_ids"] == one.prompt
            pairs = record["response"]["choices"][0]["meta_info"]["output_token_logprobs"]
            assert [pair[1] for pair in pairs] == one.sampled


async def grown(agent: Agent, turns: int) -> None:
    """Return once an agent has received so many more turns."""
    goal = len(agent.received) + turns
    while len(agent.received) < goal:  # noqa: ASYNC110  # it has no event for this
        await anyio.sleep(0.003)
