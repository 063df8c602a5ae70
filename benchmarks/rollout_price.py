"""Measure groups of turns and the price of log-probabilities with a running server, in one run.

python -m benchmarks.rollout_price vllm http://127.0.0.1:8000 [--prompt 1000] [--sampled 200] [--rounds 3]

First, 8 turns after one prompt: one request beside eight, by bytes that go up, prompt ids that are computed
and seconds. Then the same turn with log-probabilities of sampling, without any, and with a pass over the
exact ids afterwards, by seconds; and how far sampling and the pass differ by id. Ways alternate within a
round, so that other load on the machine meets all of them.
"""

from __future__ import annotations

import json
import secrets
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import attrs
import click
import httpx2

from benchmarks.command import interruptible
from tito_io.cli.options import WholeRange
from tito_io.engines.protocol import Reply, Sampling
from tito_io.engines.scores import LogprobsFrom, ScoredTurns, score
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM

GROUP = 8
COUNTERS = ("vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total")


@attrs.define
class CountedTransport(httpx2.AsyncBaseTransport):
    """A network that counts the bytes of request bodies."""

    inner: httpx2.AsyncHTTPTransport = attrs.field(factory=httpx2.AsyncHTTPTransport)
    sent: int = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Count and pass on a request."""
        self.sent += int(request.headers.get("content-length", 0))
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


@attrs.define
class Measured:
    """What was measured of one way, a value for each round."""

    seconds: list[float] = attrs.field(factory=list)
    upload: list[int] = attrs.field(factory=list)
    computed: list[int] = attrs.field(factory=list)

    def least(self) -> dict[str, float]:
        """Return the shortest time, and the medians of the others: other load makes times longer alone."""
        return {
            "seconds": min(self.seconds),
            "upload": statistics.median(self.upload),
            "computed": statistics.median(self.computed),
        }


@attrs.define
class Bench:
    """A server, and what was measured."""

    engine: VLLM | SGLang
    network: CountedTransport
    base_url: str
    prompt: int
    sampled: int
    results: dict[str, Measured] = attrs.field(factory=dict)
    differences: list[float] = attrs.field(factory=list)

    def ids(self) -> list[int]:
        """Return a prompt that no earlier one begins with, so that nothing of it is cached."""
        return [40 + secrets.randbelow(3000) for _ in range(self.prompt)]

    async def round(self) -> None:
        """Measure each way once."""
        sampling = Sampling(max_tokens=self.sampled, temperature=1.0, extra={"ignore_eos": True})
        await self.timed("8 turns, one request", self.together(attrs.evolve(sampling, n=GROUP)))
        await self.timed("8 turns, 8 requests", self.apart(sampling))
        for source in LogprobsFrom:
            await self.timed(f"log-probabilities: {source}", self.one(source, sampling))

    def together(self, sampling: Sampling) -> Callable[[], Awaitable[list[Reply]]]:
        """Return what samples a group in one request."""
        ids = self.ids()

        async def sample() -> list[Reply]:
            return [await self.engine.from_ids(ids, sampling)]

        return sample

    def apart(self, sampling: Sampling) -> Callable[[], Awaitable[list[Reply]]]:
        """Return what samples as many turns in requests of their own, at the same time."""
        ids, replies = self.ids(), list[Reply]()

        async def one() -> None:
            replies.append(await self.engine.from_ids(ids, sampling))

        async def sample() -> list[Reply]:
            async with anyio.create_task_group() as group:
                for _ in range(GROUP):
                    group.start_soon(one)
            return replies

        return sample

    def one(self, source: LogprobsFrom, sampling: Sampling) -> Callable[[], Awaitable[list[Reply]]]:
        """Return what samples a turn; of sampling's own values, the difference to a pass is kept."""
        ids, engine = self.ids(), ScoredTurns(self.engine, source)

        async def sample() -> list[Reply]:
            return [await engine.from_ids(ids, sampling)]

        return sample

    async def timed(self, way: str, sample: Callable[[], Awaitable[list[Reply]]]) -> None:
        """Measure one way."""
        counted, sent, begun = await self.counted(), self.network.sent, time.perf_counter()
        replies = await sample()
        found = self.results.setdefault(way, Measured())
        found.seconds.append(time.perf_counter() - begun)
        found.upload.append(self.network.sent - sent)
        found.computed.append(await self.counted() - counted + sum(map(self.computed, replies)))
        if way.endswith(LogprobsFrom.SAMPLING):
            await self.compare(replies[0])

    async def counted(self) -> int:
        """Return the prompt ids that vLLM has computed, by its metrics; of `n` turns an answer names one."""
        if not isinstance(self.engine, VLLM):
            return 0
        async with httpx2.AsyncClient(base_url=self.base_url, trust_env=False) as client:
            lines = (await client.get("/metrics")).text.splitlines()
        found = dict.fromkeys(COUNTERS, 0.0)
        for line in lines:
            name, _, value = line.rpartition(" ")
            if name.partition("{")[0] in found:
                found[name.partition("{")[0]] += float(value)
        return round(found[COUNTERS[0]] - found[COUNTERS[1]])

    def computed(self, reply: Reply) -> int:
        """Return the prompt ids that SGLang computed for a reply; each of its turns names its cached ids."""
        if isinstance(self.engine, VLLM):
            return 0
        turns = reply.raw.get("turns", [reply.raw])
        return sum(self.prompt - int(turn["meta_info"]["cached_tokens"]) for turn in turns)

    async def compare(self, reply: Reply) -> None:
        """Keep how far sampling's values are from those of a pass."""
        values = await score(self.engine, [*reply.prompt_ids, *reply.completion_ids], self.prompt)
        pairs = zip(reply.logprobs or (), values, strict=True)
        self.differences += [abs(a - b) for a, b in pairs if a is not None and b is not None]

    def report(self) -> dict[str, Any]:
        """Return what each way took, and the differences by id."""
        ordered = sorted(self.differences)
        return {
            "prompt": self.prompt,
            "sampled": self.sampled,
            "ways": {way: found.least() for way, found in self.results.items()},
            "difference": {
                "ids": len(ordered),
                "median": statistics.median(ordered),
                "99th": ordered[int(len(ordered) * 0.99)],
                "largest": ordered[-1],
            },
        }


async def _measured(kind: str, base_url: str, prompt: int, sampled: int, rounds: int) -> dict[str, Any]:
    network = CountedTransport()
    engine = (VLLM if kind == "vllm" else SGLang)(base_url, transport=network)
    async with engine:
        bench = Bench(engine, network, base_url, prompt, sampled)
        await bench.round()  # the engine's first requests are slow
        bench.results.clear()
        bench.differences.clear()
        for _ in range(rounds):
            await bench.round()
        return bench.report()


@click.command(help=__doc__)
@click.argument("kind", type=click.Choice(["vllm", "sglang"]))
@click.argument("base_url")
@click.option("--prompt", type=WholeRange(1), default=1000, show_default=True, help="Ids of a prompt.")
@click.option("--sampled", type=WholeRange(1), default=200, show_default=True, help="Ids of a turn.")
@click.option(
    "--rounds", type=WholeRange(1), default=3, show_default=True, help="How often each way is measured."
)
def main(kind: str, base_url: str, prompt: int, sampled: int, rounds: int) -> None:
    """Print the measurements as JSON."""
    found = anyio.run(_measured, kind, base_url, prompt, sampled, rounds)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    interruptible(main)()
