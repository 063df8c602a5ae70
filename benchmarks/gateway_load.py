"""Run many agents at once through a gateway process and check every id: `python -m benchmarks.gateway_load`.

By default 64 sessions of 50 turns with tools, half of them streamed, at the embedded engine or at `--url`.
Each prompt must begin with all ids of the turn before. At the end, the samples of each session must train
exactly the ids that its agent received. Exits with 1 if anything differs. Other options go to `tito serve`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import attrs
import httpx2
import orjson

from benchmarks.command import interruptible, whole
from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import samples

RUN = "from tito_io.serve.command import serve; serve()"
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
        http: Client of the gateway.
        place: Number of the agent.
        stream: Whether its turns are streamed.
        name: Id of its session.
        messages: The conversation so far.
        last: All ids of the turn before.
        sampled: All sampled ids received so far.
        errors: Errors of its requests.
        mismatches: Comparisons of ids that failed.
        seconds: Seconds of each turn.
    """

    http: httpx2.AsyncClient
    place: int
    stream: bool
    name: str = ""
    messages: list[Any] = attrs.field(factory=list)
    last: list[int] = attrs.field(factory=list)
    sampled: list[int] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)
    mismatches: int = 0
    seconds: list[float] = attrs.field(factory=list)

    async def run(self, turns: int) -> None:
        """Take `turns` turns, then check the samples of the session."""
        self.name = (await self.http.post("/sessions")).json()["session_id"]
        self.messages = [{"role": "user", "content": f"Where is bridge {self.place}?"}]
        try:
            for turn in range(turns):
                await self._turn(turn)
            await self._check(turns)
        except (httpx2.HTTPError, KeyError, IndexError, ValueError) as error:
            self.errors.append(f"{type(error).__name__}: {error!s:.200}")

    async def _turn(self, turn: int) -> None:
        body = {
            "messages": self.messages,
            "tools": [TOOL],
            "max_tokens": 48,
            "seed": self.place * 1000 + turn,
            "return_token_ids": True,
            "stream": self.stream,
        }
        start = time.perf_counter()
        answer = await self.http.post(f"/sessions/{self.name}/v1/chat/completions", json=body)
        self.seconds.append(time.perf_counter() - start)
        if answer.status_code != 200:  # noqa: PLR2004  # any other status is an error
            raise ValueError(f"{answer.status_code} {answer.text}")
        prompt, ids, message = _streamed(answer.text) if self.stream else _whole(answer.json())
        self.mismatches += prompt[: len(self.last)] != self.last
        self.last = prompt + ids
        self.sampled += ids
        calls = message.get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "sunny"} for call in calls]
        self.messages = [*self.messages, message, *(results or [{"role": "user", "content": "more"}])]

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


def _whole(body: Any) -> tuple[list[int], list[int], Any]:
    choice = body["choices"][0]
    return body["prompt_token_ids"], choice["token_ids"], choice["message"]


def _streamed(text: str) -> tuple[list[int], list[int], Any]:
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


async def load(url: str, sessions: int, turns: int) -> list[Agent]:
    """Run all agents at once and return them."""
    limits = httpx2.Limits(max_connections=sessions, max_keepalive_connections=sessions)
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=600) as http:
        agents = [Agent(http, place, stream=place % 2 == 1) for place in range(sessions)]
        async with anyio.create_task_group() as group:
            for agent in agents:
                group.start_soon(agent.run, turns)
    return agents


@contextlib.contextmanager
def gateway(options: list[str]) -> Iterator[str]:
    """Start a gateway process with these command-line options; return its URL."""
    with TemporaryDirectory() as folder:
        store = ["--store", f"sqlite:{Path(folder) / 'sessions.db'}"]
        command = [sys.executable, "-c", RUN, "--port", "0", *store, *options]
        path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=path)  # noqa: S603  # our own
        try:
            assert process.stdout is not None  # noqa: S101  # it was asked for
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait()


def print_summary(agents: list[Agent], turns: int, seconds: float) -> int:
    """Print times, errors and mismatches; return the exit status."""
    turn_seconds = sorted(one for agent in agents for one in agent.seconds)
    errors = [error for agent in agents for error in agent.errors]
    mismatches = sum(agent.mismatches for agent in agents)
    ids = sum(len(agent.sampled) for agent in agents)
    taken = f"{len(turn_seconds)} turns, {ids:,} sampled ids in {seconds:.1f} s"
    print(f"{len(agents)} sessions x {turns} turns: {taken}")
    print(f"errors {len(errors)}, mismatches {mismatches}")
    median = statistics.median(turn_seconds) * 1e3
    print(f"{len(turn_seconds) / seconds:.0f} turns/s; median {median:.0f} ms a turn")
    for error in errors[:5]:
        print(error)
    return int(bool(errors or mismatches or len(turn_seconds) != len(agents) * turns))


@interruptible
def main() -> int:
    """Run all agents and print the summary."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gateway_load",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--sessions", type=whole(1), default=64, help="Sessions at once. Default: %(default)s."
    )
    parser.add_argument("--turns", type=whole(1), default=50, help="Turns a session. Default: %(default)s.")
    parser.add_argument("--url", help="URL of a running gateway. Default: start one.")
    arguments, options = parser.parse_known_args()
    with contextlib.nullcontext(arguments.url) if arguments.url else gateway(options) as url:
        start = time.perf_counter()
        agents = anyio.run(load, url, arguments.sessions, arguments.turns)
        return print_summary(agents, arguments.turns, time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(main())
