"""Agents that talk to gateways that come and go, and remember what they were told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import attrs
import httpx2
import orjson

from benchmarks.gateway.agents import _streamed, _whole
from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve.gateway import HELLO, opened, user

PAUSE_SECONDS = 0.02
OUTAGES = frozenset(("StoreError", "FencedError", "SessionBusyError"))
"""What a gateway may answer with, and 503, while something behind it is away."""


@attrs.frozen
class Received:
    """A turn that an agent has received whole."""

    response: str
    prompt: list[int]
    sampled: list[int]


@attrs.define
class Gateways:
    """Clients of gateways that listen now; None where one is away."""

    clients: list[httpx2.AsyncClient | None] = attrs.field(factory=list)


@attrs.define
class Agent:
    """An agent that goes on whatever happens: what it did not receive it asks for again."""

    name: str
    stream: bool = False
    messages: list[Any] = attrs.field(factory=lambda: list(HELLO))
    received: list[Received] = attrs.field(factory=list)
    outages: int = 0
    odd: list[str] = attrs.field(factory=list)
    """What should not have happened."""
    done: bool = False
    """Whether it shall stop once it has received the turn that it has asked for."""
    strays: int = 0
    """Turns whose prompt did not begin with the ids of the turn before."""

    async def talk(self, gateways: Gateways, place: int) -> None:
        """Talk until `done`, each turn to another gateway, where there are several."""
        waiting = False
        while waiting or not self.done:
            next_one = (place + len(self.received) + self.outages) % len(gateways.clients)
            http = gateways.clients[next_one]
            waiting = http is None or not await self._asked(http)
            if waiting:
                self.outages += 1
                await anyio.sleep(PAUSE_SECONDS)

    async def _asked(self, http: httpx2.AsyncClient) -> bool:
        """Take a turn; False where it was an outage."""
        try:
            await self.turn(http)
        except httpx2.RequestError:
            return False
        except Outage:
            return False
        return True

    async def turn(self, http: httpx2.AsyncClient) -> None:
        """Take a turn; raises `Outage`, or httpx2's errors."""
        body = {
            "messages": self.messages,
            "tools": [WEATHER],
            "max_tokens": 24,
            "stream": self.stream,
            "return_token_ids": True,
        }
        answer = await http.post(f"/sessions/{self.name}/v1/chat/completions", json=body)
        if answer.status_code != 200:
            raise self._outage(answer.status_code, answer.json())
        self._take(answer)

    def _outage(self, status: int, body: Any) -> Outage:
        error = body["error"]
        kind = error.get("code") if isinstance(error, dict) else error
        if status != 503 or kind not in OUTAGES:
            self.odd.append(f"{status} {error}"[:200])
        return Outage(str(kind))

    def _take(self, answer: httpx2.Response) -> None:
        if self.stream:
            for line in answer.text.splitlines():
                if line.startswith('data: {"error"'):
                    raise self._outage(503, orjson.loads(line.removeprefix("data: ")))
            name = answer.text.partition('"id":"')[2].partition('"')[0]
            prompt, ids, message = _streamed(answer.text)
        else:
            name, (prompt, ids, message) = answer.json()["id"], _whole(answer.json())
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
        assert self.odd == []
        assert self.strays == 0
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


class Outage(Exception):  # noqa: N818  # it is what the weather is like, and no error of the test
    """Something is away for now."""


async def agents(http: httpx2.AsyncClient, count: int) -> list[Agent]:
    """Return agents with a session each; every other one has its turns streamed."""
    return [Agent(await opened(http), stream=bool(place % 2)) for place in range(count)]


async def grown(found: Sequence[Agent], turns: int) -> None:
    """Return once the agents together have received so many more turns."""
    goal = sum(len(one.received) for one in found) + turns
    while sum(len(one.received) for one in found) < goal:  # noqa: ASYNC110  # nobody tells
        await anyio.sleep(0.003)
