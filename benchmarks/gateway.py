"""Measure what the gateway adds to a turn: `python -m benchmarks.gateway [--turns 400]`.

One conversation grows to 207,000 ids over a local socket. The engine behind the gateway answers at once.
The same requests go to a plain server that only parses and answers them. The difference, less the engine's
own time, is what the gateway and its store add. `added` is wall-clock time in ms. `added_cpu` is processor
time in ms, which other programs on the machine change less.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import anyio
import attrs
import httpx2
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from benchmarks.command import interruptible, whole
from tito_core import Message
from tito_io.dialects import Chat, TurnAnswer
from tito_io.engines.protocol import ModelLimits, Rendering, Reply, Sampling, Usage, Watch
from tito_io.serve.app import app
from tito_io.serve.gateway import Gateway, build_gateway
from tito_io.serve.store import open_store

NAMES = ("gateway", "direct", "engine", "added", "added_cpu")
IDS, SAMPLED = 517, 200
"""New ids a turn, and how many of them are sampled. 400 turns have 207,000 ids."""
WORD = "word "
CLOSE = 2


@attrs.frozen
class Elapsed:
    """A point in time, or the difference of two: wall-clock and processor seconds."""

    clock: float = attrs.field(factory=time.perf_counter)
    cpu: float = attrs.field(factory=time.process_time)

    def since(self) -> Elapsed:
        """Return the seconds from this point until now."""
        return Elapsed() - self

    def __sub__(self, other: Elapsed) -> Elapsed:
        return Elapsed(self.clock - other.clock, self.cpu - other.cpu)


@attrs.define
class InstantEngine:
    """An engine that answers at once. Each word is one id; 1 opens a message and 2 closes it.

    Attributes:
        name: Name of the engine.
        keeps_ids: Whether the engine stores the ids itself; it does not.
        elapsed: Time of the last turn.
        calls: Turns so far.
    """

    name: str = "instant"
    keeps_ids: bool = False
    elapsed: Elapsed = attrs.field(factory=lambda: Elapsed(0.0, 0.0))
    calls: int = 0

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Render messages."""
        del rendering
        ids = [i for one in messages for i in (1, len(one["role"]), *_words(one["content"]), CLOSE)]
        return ids + [1, 9] * add_generation_prompt

    async def from_messages(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample after messages."""
        ids = await self.render(messages, rendering, add_generation_prompt=True)
        return await self.from_ids(ids, sampling, rendering, watch=watch)

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample after ids."""
        del sampling, rendering, watch
        start = Elapsed()
        rows = reply(ids, self.calls)
        self.calls += 1
        self.elapsed = start.since()
        return rows

    async def limits(self) -> ModelLimits:
        """Take prompts of any length."""
        return ModelLimits()

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def _words(text: str) -> list[int]:
    return [100 + crc32(word.encode()) % 100_000 for word in text.split()]


def reply(prompt: Sequence[int], call: int) -> Reply:
    """Return a turn of `SAMPLED` ids. The prompt is not copied: the copy would dominate the time."""
    text = WORD * (SAMPLED - 2) + str(call)
    ids = tuple(range(1000, 1000 + SAMPLED - 1))
    return Reply(
        prompt_ids=prompt,
        completion_ids=(*ids, CLOSE),
        logprobs=tuple(-0.001 * place for place in range(SAMPLED)),
        message={"role": "assistant", "content": text},
        text=text,
        finish_reason="stop",
        usage=Usage(prompt_tokens=len(prompt), completion_tokens=SAMPLED),
        raw={},
    )


def direct() -> Starlette:
    """Return a server that parses a chat request and answers it, without sessions or a store."""
    calls = iter(range(10**9))

    async def chat(request: Request) -> Response:
        chat_request = Chat().parse(orjson.loads(await request.body()))
        answer = TurnAnswer.of(reply((), next(calls)), id="x", created=0, model="m")
        return Response(orjson.dumps(Chat().answer_body(chat_request, answer)), media_type="application/json")

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


class Server(uvicorn.Server):
    """A uvicorn server that does not install signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield


@asynccontextmanager
async def served(application: ASGIApp) -> AsyncIterator[str]:
    """Serve an application over a local socket; return its URL."""
    server = Server(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="critical", ws="none"))
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
            await anyio.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True


async def timed(http: httpx2.AsyncClient, path: str, messages: list[Any]) -> tuple[Elapsed, Any]:
    """Send a chat request; return its time and the answered message."""
    body = orjson.dumps({"model": "m", "messages": messages})
    start = Elapsed()
    answer = await http.post(path, content=body)
    elapsed = start.since()
    answer.raise_for_status()
    return elapsed, answer.json()["choices"][0]["message"]


@attrs.frozen
class Turn:
    """Milliseconds of one turn.

    Attributes:
        gateway: Through the gateway.
        direct: Through the plain server.
        engine: Of the engine alone.
        added: Wall-clock time that the gateway added.
        added_cpu: Processor time that the gateway added.
    """

    gateway: float
    direct: float
    engine: float
    added: float
    added_cpu: float

    @classmethod
    def of(cls, through: Elapsed, directly: Elapsed, engine: Elapsed) -> Turn:
        """Return the milliseconds of a turn from the seconds of its parts."""
        added = through - directly - engine
        clocks = (through.clock, directly.clock, engine.clock, added.clock, added.cpu)
        return cls(*(seconds * 1e3 for seconds in clocks))


async def measure(gateway: Gateway, engine: InstantEngine, turns: int) -> tuple[list[Turn], int]:
    """Return the times of each turn, and how many ids the session has at the end."""
    messages: list[Any] = [{"role": "user", "content": WORD * 64}]
    rows = []
    async with served(app(gateway)) as url, served(direct()) as plain, httpx2.AsyncClient() as http:
        name = (await http.post(f"{url}/sessions")).json()["session_id"]
        path = f"{url}/sessions/{name}/v1/chat/completions"
        for _ in range(turns):
            through, message = await timed(http, path, messages)
            directly, _ = await timed(http, f"{plain}/v1/chat/completions", messages)
            rows.append(Turn.of(through, directly, engine.elapsed))
            messages = [
                *messages,
                {"role": "assistant", "content": message["content"]},
                {"role": "user", "content": WORD * (IDS - SAMPLED - 6)},
            ]
        async with gateway.sessions.using(name) as session:
            total = session.ids
    return rows, total


def print_medians(rows: Sequence[Turn], label: str) -> None:
    """Print one line: the median of each column."""
    medians = [statistics.median(getattr(row, name) for row in rows) for name in NAMES]
    print(label.ljust(16), *(f"{value:10.2f}" for value in medians))


def new_gateway(store: str) -> tuple[Gateway, InstantEngine]:
    """Return a gateway and the engine behind it."""
    engine = InstantEngine()
    return build_gateway(engine, open_store(store, idle_seconds=3600.0), model="instant"), engine


async def speed(turns: int, store: str) -> None:
    """Measure the turns and print their times."""
    gateway, engine = new_gateway(store)
    rows, total = await measure(gateway, engine, turns)
    print(f"{turns} turns, {total:,} ids, {store.partition(':')[0]}; medians in ms")
    print(" " * 16, *(f"{name:>10}" for name in NAMES))
    for start in range(0, turns, max(turns // 8, 1)):
        print_medians(rows[start : start + max(turns // 8, 1)], f"turns {start + 1} on")
    print_medians(rows, "all")


async def memory(turns: int, store: str) -> None:
    """Print how many bytes of memory an id takes."""
    gateway, engine = new_gateway(store)
    await measure(gateway, engine, 5)  # loads what is loaded only once
    gateway, engine = new_gateway(store + ".memory" if store.startswith("sqlite:") else store)
    gc.collect()
    tracemalloc.start()
    _, total = await measure(gateway, engine, turns)
    gc.collect()
    traced_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"memory: {traced_bytes / 1e6:.1f} MB for {total:,} ids: {traced_bytes / total:.0f} bytes an id")


def arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gateway",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--turns", type=whole(1), default=400, help="Turns of the conversation. Default: %(default)s."
    )
    parser.add_argument(
        "--store", help="Session store: memory, sqlite:PATH or redis://... Default: a new SQLite file."
    )
    parser.add_argument("--no-memory", action="store_true", help="Do not measure memory.")
    return parser.parse_args()


@interruptible
def main() -> None:
    """Measure time, then memory, and print both."""
    given = arguments()
    with TemporaryDirectory() as folder:
        where = given.store or f"sqlite:{Path(folder) / 'sessions.db'}"
        anyio.run(speed, given.turns, where)
        if not given.no_memory:
            anyio.run(memory, given.turns, where)


if __name__ == "__main__":
    main()
