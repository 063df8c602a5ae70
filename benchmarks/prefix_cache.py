"""Measure the prefix cache of a real vLLM on the CPU: cached ids and time to the first id, TITO and MITO.

python -m benchmarks.prefix_cache [--turns 12] [--sampled 480] [--rounds 3] [--json]

The same conversations are sent as ids (TITO) and as messages that the engine renders again (MITO). The model
is small and random, so almost none of its text is tokenized again as it was sampled. `available` counts the
ids of the turn before. `shared` counts the ids that the prompt has in common with an earlier turn. Both count
whole blocks. `cached` is the count that the engine reports. The engine is started and stopped here.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import attrs
import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.command import interruptible
from benchmarks.prefix_turns import Mito, Shape, Tito, TurnCounts, Way, block_size, converse
from benchmarks.tables import milli
from tito_io.cli.options import WholeRange
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

TITO, MITO = "TITO", "MITO"
WAYS: Mapping[str, Callable[[VLLM, Family], Way]] = {TITO: Tito, MITO: lambda engine, _: Mito(engine)}
FLAGS = ("--enable-prefix-caching", "--block-size=32")
TURNS, ROUNDS = 12, 3
WORDS, SAMPLED = 20, 480
"""Short questions and long answers: the last turn nearly fills the model's context of 8,192 ids."""
WARMING = 2
"""Turns of a first conversation that is not counted, because an engine's first requests are slow."""


@attrs.frozen
class CacheResults:
    """All measured turns.

    Attributes:
        block: Ids of a block of the cache.
        shape: Size of the conversations.
        rounds: For each way (TITO, MITO), a list of turns per conversation.
    """

    block: int
    shape: Shape
    rounds: Mapping[str, Sequence[Sequence[TurnCounts]]]

    def sums(self, way: str) -> dict[str, float]:
        """Return the cached ids of all turns as fractions of the prompts, of available and of shared ids."""
        turns = [one for turns in self.rounds[way] for one in turns]
        available, shared = sum(one.available for one in turns), sum(one.shared for one in turns)
        cached, prompt = sum(one.cached for one in turns), sum(one.prompt for one in turns)
        return {
            "of the prompts": cached / prompt,
            "of available": cached / available,
            "of shared": cached / shared,
        }

    def first(self, way: str, turn: int) -> float:
        """Return the median seconds to the first id in a turn, over all conversations."""
        return statistics.median(turns[turn].first for turns in self.rounds[way])

    def late(self, way: str) -> float:
        """Return the median seconds to the first id over the later half of all turns."""
        half = self.shape.turns // 2
        return statistics.median(one.first for turns in self.rounds[way] for one in turns[half:])


async def measure_ways(
    base_url: str, family: Family, shape: Shape, rounds: int, step: Callable[[str], None]
) -> CacheResults:
    """Run conversations each way in alternation; the first one of each is a warm-up."""
    results: dict[str, list[list[TurnCounts]]] = {way: [] for way in WAYS}
    block = await block_size(base_url)
    for number in range(-1, rounds):
        for way, make_way in WAYS.items():
            async with VLLM(base_url) as engine:
                salt = f"{way}-{number}"
                chosen_shape = shape if number >= 0 else attrs.evolve(shape, turns=WARMING)
                turns = await converse(make_way(engine, family), chosen_shape, block, salt, seed=number + 1)
            if number >= 0:
                results[way].append(turns)
            step(f"{way}, conversation {number + 1} of {rounds}")
    return CacheResults(block, shape, results)


def json_data(results: CacheResults) -> dict[str, Any]:
    """Return the results as JSON data; times are in seconds."""
    sums = {way: results.sums(way) for way in WAYS}
    first = {way: [results.first(way, turn) for turn in range(results.shape.turns)] for way in WAYS}
    late = {way: results.late(way) for way in WAYS}
    return {**attrs.asdict(results), "reached": sums, "first": first, "late": late}


def print_results(console: Console, results: CacheResults) -> None:
    """Print the turns of the last conversation of each way, and sums over all."""
    console.print(f"blocks of {results.block} ids; ids by turn, and the median ms to the first sampled id")
    table = Table(box=None, pad_edge=False)
    for name in (
        "turn",
        *(f"{way} {what}" for way in WAYS for what in ("prompt", "available", "cached", "ms")),
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for turn in range(results.shape.turns):
        table.add_row(str(turn + 1), *(cell for way in WAYS for cell in _cells(results, way, turn)))
    console.print(table)
    for way in WAYS:
        parts = ", ".join(f"{value:.3f} {name}" for name, value in results.sums(way).items())
        console.print(f"{way}: cached ids: {parts}")
    late = {way: results.late(way) for way in WAYS}
    medians = ", ".join(f"{way} {milli(seconds)}" for way, seconds in late.items())
    ratio = late[MITO] / late[TITO]
    console.print(f"median ms to the first id, later half of the turns: {medians}, {ratio:.1f} times as long")


def _cells(results: CacheResults, way: str, turn: int) -> tuple[str, ...]:
    one = results.rounds[way][-1][turn]
    return f"{one.prompt:,}", f"{one.available:,}", f"{one.cached:,}", milli(results.first(way, turn))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--turns", type=WholeRange(2), default=TURNS, show_default=True, help="Turns a conversation.")
@click.option(
    "--rounds", type=WholeRange(1), default=ROUNDS, show_default=True, help="Conversations each way."
)
@click.option("--sampled", type=WholeRange(1), default=SAMPLED, show_default=True, help="Sampled ids a turn.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@interruptible
def main(*, turns: int, rounds: int, sampled: int, as_json: bool) -> None:
    """Measure how many prompt ids a real vLLM finds in its prefix cache, with TITO and with MITO."""
    from tests.engines.vllm import vllm  # noqa: PLC0415  # the tests' engine launcher, needed by this command only

    shape = Shape(turns=turns, words=WORDS, sampled=sampled)
    console = Console(stderr=True)
    with TemporaryDirectory() as folder, Progress(console=console) as progress:
        task = progress.add_task("starting vLLM", total=(1 + rounds) * len(WAYS))

        def step(label: str) -> None:
            progress.update(task, advance=1, description=label)

        with vllm(console.print, Path(folder) / "vllm.log", *FLAGS) as server:
            family = Family.load(server.family)
            results = anyio.run(measure_ways, server.base_url, family, shape, rounds, step)
    if as_json:
        click.echo(json.dumps(json_data(results), indent=1))
    else:
        print_results(Console(width=None if sys.stdout.isatty() else 120), results)


if __name__ == "__main__":
    main()
