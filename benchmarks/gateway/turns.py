"""One long conversation, through the gateway, through a proxy that passes bytes on, and at the engine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import httpx2
import orjson

from benchmarks.gateway.processes import ServerProcess, Servers
from benchmarks.gateway.upstream import WORD

IDS, SAMPLED = 517, 200
"""New ids a turn, and how many of them are sampled. 400 turns have 207,000 ids."""
CHAT = "/v1/chat/completions"
SETTLING = 0.004
"""Seconds after an answer in which its server still works for it: it notes that the turn was received."""


@attrs.frozen
class Cost:
    """What one turn took, in ms.

    Attributes:
        gateway: Processor time of the gateway.
        proxy: Processor time of the proxy.
        parsing: Processor time of reading the request's JSON, which the gateway must and the proxy need not.
        gateway_wall: Until the answer was there, through the gateway.
        proxy_wall: The same through the proxy.
        engine_wall: The same at the engine.
    """

    gateway: float
    proxy: float
    parsing: float
    gateway_wall: float
    proxy_wall: float
    engine_wall: float

    @property
    def added(self) -> float:
        """What the gateway uses more than the proxy."""
        return self.gateway - self.proxy


def median(costs: Sequence[Cost], value: Callable[[Cost], float]) -> float:
    """Return the median of a value over turns."""
    return statistics.median(map(value, costs))


@attrs.frozen
class Conversation:
    """The costs of a conversation's turns.

    Attributes:
        stream: Whether the turns were streamed.
        costs: The cost of each turn.
        memory: By how many bytes the gateway grew.
        name: The session.
    """

    stream: bool
    costs: list[Cost]
    memory: int
    name: str

    @property
    def ids(self) -> int:
        """How many ids the conversation has, about."""
        return IDS * len(self.costs)

    def parts(self, count: int = 8) -> Iterator[tuple[int, list[Cost]]]:
        """Yield the conversation in parts: the number of the first turn, and the costs."""
        size = max(len(self.costs) // count, 1)
        for start in range(0, len(self.costs), size):
            yield start + 1, self.costs[start : start + size]


def converse(servers: Servers, turns: int, *, stream: bool, done: Callable[[], object]) -> Conversation:
    """Take turns, each through all three; `done` is called after each turn."""
    messages: list[Any] = [{"role": "user", "content": WORD * 64}]
    costs, before = [], servers.gateway.memory()
    with httpx2.Client(timeout=600) as http:
        name = http.post(f"{servers.gateway.url}/sessions").json()["session_id"]
        for _ in range(turns):
            body = orjson.dumps({"model": "m", "messages": messages, "stream": stream})
            through = f"{servers.gateway.url}/sessions/{name}{CHAT}"
            gateway, gateway_wall, answer = _timed(http, servers.gateway, through, body)
            proxy, proxy_wall, _ = _timed(http, servers.proxy, servers.proxy.url + CHAT, body)
            _, engine_wall, _ = _timed(http, servers.engine, servers.engine.url + CHAT, body)
            costs.append(Cost(gateway, proxy, _parsing(body), gateway_wall, proxy_wall, engine_wall))
            said = {"role": "user", "content": WORD * (IDS - SAMPLED - 6)}
            messages = [*messages, {"role": "assistant", "content": _text(answer, stream=stream)}, said]
            done()
    return Conversation(stream, costs, servers.gateway.memory() - before, name)


def _timed(http: httpx2.Client, server: ServerProcess, url: str, body: bytes) -> tuple[float, float, str]:
    """Send a request; return the milliseconds that its server used and that it took, and the answer."""
    cpu, start = server.cpu_seconds(), time.perf_counter()
    answer = http.post(url, content=body, headers={"content-type": "application/json"})
    wall = time.perf_counter() - start
    answer.raise_for_status()
    time.sleep(SETTLING)
    return (server.cpu_seconds() - cpu) * 1e3, wall * 1e3, answer.text


def _parsing(body: bytes) -> float:
    start = time.thread_time()
    orjson.loads(body)
    return (time.thread_time() - start) * 1e3


def _text(answer: str, *, stream: bool) -> str:
    """Return the text of an answer."""
    if not stream:
        return str(orjson.loads(answer)["choices"][0]["message"]["content"])
    chunks = [orjson.loads(line[6:]) for line in answer.split("\n\n") if line.startswith("data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


@attrs.frozen
class Collected:
    """What it took to read a whole session.

    Attributes:
        what: What was read.
        bytes: Its size.
        seconds: Processor seconds of the gateway.
        memory: The most memory that the gateway had beyond what it had before, in bytes.
    """

    what: str
    bytes: int
    seconds: float
    memory: int


def collect(servers: Servers, name: str) -> list[Collected]:
    """Read the samples and the records of a session."""
    gateway, found = servers.gateway, []
    with httpx2.Client(timeout=600) as http:
        for what, method, path in (("samples", "POST", "/samples"), ("records", "GET", "")):
            cpu, before = gateway.cpu_seconds(), gateway.memory()
            size = 0
            with http.stream(method, f"{gateway.url}/sessions/{name}{path}") as answer:
                for part in answer.iter_raw():
                    size += len(part)
            grown = max(gateway.memory("VmHWM") - before, 0)
            found.append(Collected(what, size, gateway.cpu_seconds() - cpu, grown))
    return found
