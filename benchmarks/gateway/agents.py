"""Many agents at once. Each checks every id that it receives, and at the end what a trainer would get.

Each prompt must begin with all ids of the turn before. The samples of a session must train exactly the ids
that its agent received.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio
import attrs
import httpx2
import orjson

from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import samples

RETRIES = 3
"""How often a request is sent at most."""
UNREACHED = '"UnreachableError"'
"""What the gateway calls it in the last event of a stream."""
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@attrs.define
class Agent:
    """The agent of one session, and what it received.

    Attributes:
        http: Client of the gateway, or of an engine.
        place: Number of the agent.
        stream: Whether its turns are streamed.
        session: Whether it has a session; else it has no ids to check.
        done: Called after each turn.
        name: Id of its session.
        messages: The conversation so far.
        last: All ids of the turn before.
        sampled: All sampled ids received so far.
        errors: Errors of its requests.
        repeats: How many requests were sent again because the engine was not reached.
        mismatches: Comparisons of ids that failed.
        seconds: Seconds of each turn.
    """

    http: httpx2.AsyncClient
    place: int
    stream: bool
    session: bool = True
    done: Callable[[], object] = bool
    name: str = ""
    messages: list[Any] = attrs.field(factory=list)
    last: list[int] = attrs.field(factory=list)
    sampled: list[int] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)
    repeats: int = 0
    mismatches: int = 0
    seconds: list[float] = attrs.field(factory=list)

    async def run(self, turns: int) -> None:
        """Take `turns` turns, then check the samples of the session."""
        if self.session:
            self.name = (await self.http.post("/sessions")).json()["session_id"]
        self.messages = [{"role": "user", "content": f"Where is bridge {self.place}?"}]
        try:
            for turn in range(turns):
                await self._turn(turn)
                self.done()
            if self.session:
                await self._check(turns)
        except (httpx2.HTTPError, KeyError, IndexError, ValueError) as error:
            self.errors.append(f"{type(error).__name__}: {error!s:.200}")

    async def _turn(self, turn: int) -> None:
        body = {
            "messages": self.messages,
            "tools": [TOOL],
            "max_tokens": 48,
            "seed": self.place * 1000 + turn,
            "return_token_ids": self.session,
            "stream": self.stream,
        }
        start = time.perf_counter()
        prompt, ids, message = await self._answer(body)
        self.seconds.append(time.perf_counter() - start)
        self.mismatches += prompt[: len(self.last)] != self.last
        self.last = prompt + ids
        self.sampled += ids
        calls = message.get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "sunny"} for call in calls]
        self.messages = [*self.messages, message, *(results or [{"role": "user", "content": "more"}])]

    async def _answer(self, body: dict[str, Any]) -> tuple[list[int], list[int], Any]:
        """Return the answer; ask again where the server says that the engine was not reached, as SDKs do."""
        path = f"/sessions/{self.name}" if self.session else ""
        for _ in range(RETRIES):
            answer = await self.http.post(f"{path}/v1/chat/completions", json=body)
            if answer.status_code != 503 and UNREACHED not in answer.text:  # noqa: PLR2004  # the status of an outage
                break
            self.repeats += 1
        if answer.status_code != 200:  # noqa: PLR2004  # any other status is an error
            raise ValueError(f"{answer.status_code} {answer.text}")
        return streamed_answer(answer.text) if self.stream else whole_answer(answer.json())

    async def _check(self, turns: int) -> None:
        """Compare the samples with the received ids."""
        answer = await self.http.post(f"/sessions/{self.name}/samples", json={})
        container = samples(Check("samples", EngineAnswer(answer.status_code, b"")), answer.content)
        trained = [
            one
            for row in container.samples
            for one, mask in zip(row.tokens[-row.response_length :], row.loss_mask or (), strict=True)
            if mask
        ]
        self.mismatches += trained != self.sampled or list(container.samples[0].tokens) != self.last
        nodes = container.session_metadata["tree"]["nodes"]
        self.mismatches += len(nodes) != turns
        await self.http.delete(f"/sessions/{self.name}")


def whole_answer(body: Any) -> tuple[list[int], list[int], Any]:
    """Return prompt ids, sampled ids and the message of an answer."""
    choice = body["choices"][0]
    return body.get("prompt_token_ids", []), choice.get("token_ids", []), choice["message"]


def streamed_answer(text: str) -> tuple[list[int], list[int], Any]:
    """Join the events of a stream: prompt ids, sampled ids and the message."""
    prompt: list[int] = []
    ids: list[int] = []
    message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning": ""}
    calls: dict[int, dict[str, Any]] = {}
    for line in text.split("\n\n"):
        if not line.startswith("data: {"):
            continue
        event = orjson.loads(line.removeprefix("data: "))
        if "error" in event:
            raise ValueError(str(event["error"])[:200])
        prompt = event.get("prompt_token_ids") or prompt
        for choice in event["choices"]:
            ids += choice.get("token_ids") or []
            for name in ("content", "reasoning"):
                message[name] += choice["delta"].get(name) or ""
            _add_tool_calls(calls, choice["delta"].get("tool_calls") or [])
    if calls:
        message["tool_calls"] = list(calls.values())
    return prompt, ids, {name: value for name, value in message.items() if value or name == "content"}


def _add_tool_calls(calls: dict[int, dict[str, Any]], pieces: list[Any]) -> None:
    for piece in pieces:
        empty: dict[str, Any] = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = calls.setdefault(piece["index"], empty)
        call["id"] += piece.get("id") or ""
        for name, value in (piece.get("function") or {}).items():
            call["function"][name] += value or ""


async def load(
    url: str, sessions: int, turns: int, *, session: bool = True, done: Callable[[], object] = bool
) -> list[Agent]:
    """Run agents at once, half of them streaming, and return them; `done` is called after each turn."""
    limits = httpx2.Limits(max_connections=sessions, max_keepalive_connections=sessions)
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=600) as http:
        agents = [
            Agent(http, place, stream=place % 2 == 1, session=session, done=done) for place in range(sessions)
        ]
        async with anyio.create_task_group() as group:
            for agent in agents:
                group.start_soon(agent.run, turns)
    return agents
