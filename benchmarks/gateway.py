"""What the gateway adds to a turn: `python -m benchmarks.gateway [--turns 400] [--store sqlite:PATH]`.

One conversation grows to 207,000 ids over a real socket of this machine, before an engine that samples in
no time. The same requests go to a server that does nothing but read and answer them; the difference is what
the gateway adds, its store among it. The engine's own time is taken off. `added` is in milliseconds of the
clock, `added_cpu` in those of the processors, which other programs on the machine change less.
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
"""New ids a turn, and how many of them are sampled: 400 turns are 207,000 ids."""
WORD = "word "
CLOSE = 2


@attrs.frozen
class Spent:
    """Seconds that something took."""

    clock: float = attrs.field(factory=time.perf_counter)
    cpu: float = attrs.field(factory=time.process_time)

    def since(self) -> Spent:
        """Return what was spent since."""
        return Spent() - self

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.clock - other.clock, self.cpu - other.cpu)


@attrs.define
class Instant:
    """An engine that takes no time. A text of n words has n ids; a turn is opened by 1 and closed by 2."""

    name: str = "instant"
    keeps_ids: bool = False
    spent: Spent = attrs.field(factory=lambda: Spent(0.0, 0.0))
    """What the last turn took all the same."""
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
        start = Spent()
        found = reply(ids, self.calls)
        self.calls += 1
        self.spent = start.since()
        return found

    async def limits(self) -> ModelLimits:
        """Take prompts of any length."""
        return ModelLimits()

    async def aclose(self) -> None:
        """Have nothing to close."""


def _words(text: str) -> list[int]:
    return [100 + crc32(word.encode()) % 100_000 for word in text.split()]


def reply(prompt: Sequence[int], call: int) -> Reply:
    """Return a turn of `SAMPLED` ids; the prompt's are not copied, which would be all that is measured."""
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
    """Return a server that reads a chat and answers it, and keeps nothing."""
    calls = iter(range(10**9))

    async def chat(request: Request) -> Response:
        asked = Chat().parse(orjson.loads(await request.body()))
        answer = TurnAnswer.of(reply((), next(calls)), id="x", created=0, model="m")
        return Response(orjson.dumps(Chat().answer_body(asked, answer)), media_type="application/json")

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


class Server(uvicorn.Server):
    """A server that leaves signals to the benchmark."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


@asynccontextmanager
async def served(application: ASGIApp) -> AsyncIterator[str]:
    """Serve over a real socket."""
    server = Server(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="critical", ws="none"))
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        while not server.started:  # noqa: ASYNC110  # uvicorn tells nobody
            await anyio.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True


async def timed(http: httpx2.AsyncClient, path: str, messages: list[Any]) -> tuple[Spent, Any]:
    """Send a chat; return what it took, and the message."""
    body = orjson.dumps({"model": "m", "messages": messages})
    start = Spent()
    answer = await http.post(path, content=body)
    spent = start.since()
    answer.raise_for_status()
    return spent, answer.json()["choices"][0]["message"]


@attrs.frozen
class Turn:
    """What one turn took, in milliseconds."""

    gateway: float
    direct: float
    engine: float
    added: float
    """What the gateway added."""
    added_cpu: float

    @classmethod
    def of(cls, through: Spent, past: Spent, engine: Spent) -> Turn:
        """Return the row of a turn."""
        added = through - past - engine
        clocks = (through.clock, past.clock, engine.clock, added.clock, added.cpu)
        return cls(*(seconds * 1e3 for seconds in clocks))


async def measure(gateway: Gateway, engine: Instant, turns: int) -> tuple[list[Turn], int]:
    """Return a row for each turn, and how many ids the session holds at the end."""
    messages: list[Any] = [{"role": "user", "content": WORD * 64}]
    found = []
    async with served(app(gateway)) as url, served(direct()) as plain, httpx2.AsyncClient() as http:
        name = (await http.post(f"{url}/sessions")).json()["session_id"]
        path = f"{url}/sessions/{name}/v1/chat/completions"
        for _ in range(turns):
            through, message = await timed(http, path, messages)
            past, _ = await timed(http, f"{plain}/v1/chat/completions", messages)
            found.append(Turn.of(through, past, engine.spent))
            messages = [
                *messages,
                {"role": "assistant", "content": message["content"]},
                {"role": "user", "content": WORD * (IDS - SAMPLED - 6)},
            ]
        async with gateway.sessions.using(name) as session:
            total = session.ids
    return found, total


def told(rows: Sequence[Turn], label: str) -> None:
    """Print a line of medians."""
    medians = [statistics.median(getattr(row, name) for row in rows) for name in NAMES]
    print(label.ljust(16), *(f"{value:10.2f}" for value in medians))


def ready(store: str) -> tuple[Gateway, Instant]:
    """Return a gateway in front of an instant engine."""
    engine = Instant()
    return build_gateway(engine, open_store(store, idle_seconds=3600.0), model="instant"), engine


async def speed(turns: int, store: str) -> None:
    """Measure and print."""
    gateway, engine = ready(store)
    rows, total = await measure(gateway, engine, turns)
    print(f"{turns} turns, {total:,} ids, {store.partition(':')[0]}; medians in ms")
    print(" " * 16, *(f"{name:>10}" for name in NAMES))
    for start in range(0, turns, max(turns // 8, 1)):
        told(rows[start : start + max(turns // 8, 1)], f"turns {start + 1} on")
    told(rows, "all")


async def memory(turns: int, store: str) -> None:
    """Print how many bytes an id takes in memory."""
    gateway, engine = ready(store)
    await measure(gateway, engine, 5)  # what is loaded once
    gateway, engine = ready(store + ".memory" if store.startswith("sqlite:") else store)
    gc.collect()
    tracemalloc.start()
    _, total = await measure(gateway, engine, turns)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"memory: {held / 1e6:.1f} MB held for {total:,} ids: {held / total:.0f} bytes an id")


def arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gateway",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--turns", type=whole(1), default=400)
    parser.add_argument("--store", help="memory, sqlite:PATH or redis://...; a new SQLite file by default")
    parser.add_argument("--no-memory", action="store_true", help="leave out the measurement of memory")
    return parser.parse_args()


@interruptible
def main() -> None:
    """Print what was asked for."""
    given = arguments()
    with TemporaryDirectory() as folder:
        where = given.store or f"sqlite:{Path(folder) / 'sessions.db'}"
        anyio.run(speed, given.turns, where)
        if not given.no_memory:
            anyio.run(memory, given.turns, where)


if __name__ == "__main__":
    main()
