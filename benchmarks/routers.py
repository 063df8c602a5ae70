"""Measure what workers behind real routers have cached: prompts by ids or messages, with and without a name.

python -m benchmarks.routers [ROUTER ...] [--conversations 100] [--turns 5] [--json]

The conversations run at once, and take each turn at the same time. `TITO` extends the ids of the turn
before, `MITO` renders the messages again, in which some sampled text is tokenized otherwise. `named` requests
have the conversation's name in their headers. `available` counts the ids of the turn before that its worker
has cached. `one worker` counts the conversations that never moved.

The workers of SGLang's and vLLM's router are small processes with a simulated prefix cache
(`tests/engines/router_worker.py`); Dynamo has its own mockers. Everything is started and stopped here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import attrs
import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.command import interruptible
from tito_core import Message, Trajectory
from tito_io.cli.options import WholeRange
from tito_io.client.token_client import TokenClient
from tito_io.client.turn import reply_message
from tito_io.embedded import family as embedded_family
from tito_io.engines.dynamo import Dynamo
from tito_io.engines.protocol import Engine, Rendering, Reply, Sampling
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

WORKERS = 4
CONVERSATIONS, TURNS, SAMPLED = 100, 5, 32
AT_ONCE = 16
"""How many turns are sampled at once."""
WORDS = (
    "river",
    "bends",
    "near",
    "an",
    "old",
    "mill",
    "and",
    "carries",
    "leaves",
    "past",
    "stones",
    "herons",
)

Say = Callable[[str], None]


@attrs.frozen
class Way:
    """How turns are requested.

    Attributes:
        by_ids: Whether prompts go by ids; else the messages are rendered again.
        named: Whether requests name their conversation.
    """

    by_ids: bool
    named: bool

    @property
    def title(self) -> str:
        """What a table calls it."""
        return f"{'TITO' if self.by_ids else 'MITO'}, {'named' if self.named else 'no name'}"


WAYS = tuple(Way(by_ids, named) for by_ids in (True, False) for named in (True, False))


@attrs.frozen
class Setup:
    """A router, and how it was started.

    Attributes:
        kind: `dynamo`, `sglang` or `vllm`.
        flags: What sets its policy.
        block: How many ids its workers cache together.
        keeps_sampled: Whether its workers cache sampled ids; Dynamo's mockers cache those of prompts alone.
    """

    kind: str
    flags: tuple[str, ...]
    block: int
    keeps_sampled: bool = True

    def available(self, prompt: int, sampled: int) -> int:
        """Return how many ids of a turn are cached for the next one; the last one sampled is not computed.

        >>> Setup("vllm", (), 16).available(20, 13), Setup("dynamo", (), 16, False).available(20, 13)
        (32, 16)
        """
        computed = prompt + (sampled - 1 if self.keeps_sampled else 0)
        return computed // self.block * self.block


SETUPS: Mapping[str, Setup] = {
    "dynamo-kv": Setup(
        "dynamo",
        ("--router-mode=kv", "--no-router-kv-events", "--router-session-affinity-ttl-secs=600"),
        64,
        keeps_sampled=False,
    ),
    "sglang-router": Setup("sglang", ("--policy=manual",), 1),
    "sglang-router-cache-aware": Setup("sglang", ("--policy=cache_aware",), 1),
    "vllm-router": Setup("vllm", ("--policy=consistent_hash",), 16),
    "vllm-router-cache-aware": Setup("vllm", ("--policy=cache_aware",), 16),
}


@attrs.frozen
class Turn:
    """What was cached of one prompt.

    Attributes:
        prompt: Ids of the prompt.
        available: Ids of the turn before that its worker has cached.
        cached: Cached ids, as the worker reports them.
        request: The request's id.
        worker: The worker, where the router names it.
    """

    prompt: int
    available: int
    cached: int
    request: str
    worker: str | None


@attrs.frozen
class Result:
    """The turns of all conversations by one way.

    Attributes:
        router: The router's name in `SETUPS`.
        way: How turns were requested.
        prompt: Ids of all prompts after first turns.
        available: Of those, the ids that a worker could have cached.
        cached: The ids that were cached.
        stayed: Conversations all of whose turns were sampled by one worker.
        conversations: How many conversations there were.
        shares: Turns by worker, the busiest first.
    """

    router: str
    way: str
    prompt: int
    available: int
    cached: int
    stayed: int
    conversations: int
    shares: tuple[int, ...]


@attrs.define
class RoutedConversation:
    """One conversation."""

    client: TokenClient
    way: Way
    name: str
    setup: Setup
    prompt: list[Message] = attrs.field(init=False)
    trajectory: Trajectory = attrs.field(factory=Trajectory)
    turns: list[Turn] = attrs.field(factory=list)
    available: int = 0

    def __attrs_post_init__(self) -> None:
        # The first words differ, so that no conversation has another one's blocks.
        self.prompt = [{"role": "user", "content": f"{self.name}: {passage(self.name, 120)}"}]

    async def take(self) -> None:
        """Take the next turn."""
        reply = await self._sampled()
        prompt, sampled = len(reply.prompt_ids), len(reply.completion_ids)
        self.turns.append(
            Turn(
                prompt,
                self.available,
                reply.usage.cached_tokens or 0,
                str(reply.request_id),
                reply.worker,
            )
        )
        self.available = self.setup.available(prompt, sampled)
        question: Message = {"role": "user", "content": passage(f"{self.name} {len(self.turns)}", 20)}
        self.prompt = [*self.prompt, reply_message(reply), question]

    async def _sampled(self) -> Reply:
        name = self.name if self.way.named else None
        sampling = Sampling(max_tokens=SAMPLED, seed=len(self.turns), conversation=name)
        if not self.way.by_ids:
            return await self.client.engine.from_messages(self.prompt, Rendering(), sampling)
        done = await self.client.sample(self.trajectory, self.prompt, Rendering(), sampling)
        self.trajectory = self.trajectory.append(done.step)
        return done.turn.reply


def passage(seed: str, words: int) -> str:
    """Return words that a seed determines.

    >>> passage("a", 3) == passage("a", 3)
    True
    """
    state, found = sum(seed.encode()), []
    for _ in range(words):
        state = (state * 1103515245 + 12345) % 2**31
        found.append(WORDS[state // 65536 % len(WORDS)])
    return " ".join(found)


async def converse(
    engine: Engine, way: Way, setup: Setup, conversations: int, turns: int, step: Callable[[], None]
) -> list[RoutedConversation]:
    """Run conversations, turn by turn; return them."""
    client = TokenClient(engine)
    found = [
        RoutedConversation(client, way, f"{way.title.replace(', ', '-')}.{n}", setup)
        for n in range(conversations)
    ]
    places = anyio.CapacityLimiter(AT_ONCE)

    async def take(one: RoutedConversation) -> None:
        async with places:
            await one.take()
        step()

    for _ in range(turns):
        async with anyio.create_task_group() as tasks:
            for one in found:
                tasks.start_soon(take, one)
    return found


def result(
    router: str, way: Way, found: Sequence[RoutedConversation], worker_of: Callable[[Turn], str]
) -> Result:
    """Return the sums over conversations; their first turns can have nothing cached."""
    later = [turn for one in found for turn in one.turns[1:]]
    workers = [[worker_of(turn) for turn in one.turns] for one in found]
    busy: dict[str, int] = {}
    for name in (name for names in workers for name in names):
        busy[name] = busy.get(name, 0) + 1
    return Result(
        router,
        way.title,
        sum(turn.prompt for turn in later),
        sum(turn.available for turn in later),
        sum(turn.cached for turn in later),
        sum(len(set(names)) == 1 for names in workers),
        len(found),
        tuple(sorted(busy.values(), reverse=True)),
    )


@contextmanager
def started(
    setup: Setup, say: Say, logs: Path
) -> Iterator[tuple[Callable[[], Dynamo | SGLang | VLLM], Callable[[], Callable[[Turn], str]]]]:
    """Lend a router: what makes an engine of it, and what knows the worker of a turn."""
    from tests.engines.routers import kv_router, router  # noqa: PLC0415  # the tests' launcher

    if setup.kind == "dynamo":
        with kv_router(say, logs, *setup.flags, workers=WORKERS) as deployment:
            folder, url = Family.load(deployment.family), deployment.base_url
            yield (
                lambda: Dynamo(url, family=folder, logprobs=False),
                lambda: lambda turn: str(turn.worker),
            )
        return
    with router(setup.kind, say, logs, *setup.flags, workers=WORKERS) as routed:
        url = routed.base_url

        def known() -> Callable[[Turn], str]:
            places = {request: str(place) for request, _, place in routed.sampled()}
            return lambda turn: places[turn.request]

        yield (
            lambda: SGLang(url, family=embedded_family()) if setup.kind == "sglang" else VLLM(url),
            known,
        )


def measure(name: str, conversations: int, turns: int, say: Say, step: Callable[[str], None]) -> list[Result]:
    """Measure one router, all ways."""
    setup, results = SETUPS[name], list[Result]()

    async def run(engine: Dynamo | SGLang | VLLM, way: Way) -> list[RoutedConversation]:
        async with engine:
            label = f"{name}: {way.title}"
            return await converse(engine, way, setup, conversations, turns, lambda: step(label))

    with TemporaryDirectory() as folder, started(setup, say, Path(folder) / "logs") as (engine, workers):
        for way in WAYS:
            found = anyio.run(run, engine(), way)
            results.append(result(name, way, found, workers()))
    return results


def print_results(console: Console, results: Sequence[Result]) -> None:
    """Print a row for each router and way."""
    table = Table(box=None, pad_edge=False)
    table.add_column("router", no_wrap=True)
    table.add_column("prompts", no_wrap=True)
    for name in ("prompt ids", "available", "cached", "of available", "one worker", "turns by worker"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in results:
        table.add_row(
            one.router,
            one.way,
            f"{one.prompt:,}",
            f"{one.available:,}",
            f"{one.cached:,}",
            f"{100 * one.cached / max(one.available, 1):.1f}%",
            f"{one.stayed} of {one.conversations}",
            " ".join(map(str, one.shares)),
        )
    console.print(table)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("routers", nargs=-1, type=click.Choice(list(SETUPS)))
@click.option(
    "--conversations",
    type=WholeRange(1),
    default=CONVERSATIONS,
    show_default=True,
    help="Conversations each way.",
)
@click.option("--turns", type=WholeRange(2), default=TURNS, show_default=True, help="Turns a conversation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of a table.")
@interruptible
def main(*, routers: tuple[str, ...], conversations: int, turns: int, as_json: bool) -> None:
    """Measure the cached ids of prompts behind real routers; all of them unless some are named."""
    console, results = Console(stderr=True), list[Result]()
    chosen = routers or tuple(SETUPS)
    with Progress(console=console) as progress:
        task = progress.add_task("starting", total=len(chosen) * len(WAYS) * conversations * turns)

        def step(label: str) -> None:
            progress.update(task, advance=1, description=label)

        for name in chosen:
            results += measure(name, conversations, turns, lambda _: None, step)
    if as_json:
        click.echo(json.dumps([attrs.asdict(one) for one in results], indent=1))
    else:
        print_results(Console(width=None if sys.stdout.isatty() else 140), results)


if __name__ == "__main__":
    main()
