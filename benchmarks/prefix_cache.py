"""What keeping ids buys at a real vLLM with prefix caching, on the CPU: cached ids and time to the first id.

python -m benchmarks.prefix_cache [--turns 12] [--sampled 480] [--rounds 3] [--json]

The same questions are asked by ids (TITO) and by messages that the engine renders again (MITO). The model is
small and random, so that almost nothing that it says is tokenized again as it was sampled. Of a turn, `held`
is what the engine had of the conversation so far, `shared` what of it begins the new prompt, both in whole
blocks, and `cached` what the engine says that it used. The engine is started and stopped here.
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
from benchmarks.prefix_turns import Mito, Seen, Shape, Tito, Way, block_size, talk
from benchmarks.show import milli
from tito_io.cli.options import WholeRange
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

TITO, MITO = "TITO", "MITO"
WAYS: Mapping[str, Callable[[VLLM, Family], Way]] = {TITO: Tito, MITO: lambda engine, _: Mito(engine)}
FLAGS = ("--enable-prefix-caching", "--block-size=32")
TURNS, ROUNDS = 12, 3
WORDS, SAMPLED = 20, 480
"""Short questions and long answers, up to most of the model's context of 8,192 ids."""
WARMING = 2
"""Turns of a conversation before the others, left out: an engine's first requests are slow."""


@attrs.frozen
class Found:
    """Everything that was measured."""

    block: int
    """Ids of a block."""
    shape: Shape
    rounds: Mapping[str, Sequence[Sequence[Seen]]]
    """By the way, a list of turns for each conversation."""

    def sums(self, way: str) -> dict[str, float]:
        """Return what all turns of a way amount to, as parts of what was held and of what was shared."""
        turns = [one for turns in self.rounds[way] for one in turns]
        held, shared = sum(one.held for one in turns), sum(one.shared for one in turns)
        cached, prompt = sum(one.cached for one in turns), sum(one.prompt for one in turns)
        return {"of the prompts": cached / prompt, "of held": cached / held, "of shared": cached / shared}

    def first(self, way: str, turn: int) -> float:
        """Return the median of seconds to the first id in a turn, over all conversations."""
        return statistics.median(turns[turn].first for turns in self.rounds[way])

    def late(self, way: str) -> float:
        """Return that median over the later half of all turns."""
        half = self.shape.turns // 2
        return statistics.median(one.first for turns in self.rounds[way] for one in turns[half:])


async def measured(
    base_url: str, family: Family, shape: Shape, rounds: int, step: Callable[[str], None]
) -> Found:
    """Hold conversations by each way in turns; the first one of each is left out."""
    found: dict[str, list[list[Seen]]] = {way: [] for way in WAYS}
    block = await block_size(base_url)
    for number in range(-1, rounds):
        for way, made in WAYS.items():
            async with VLLM(base_url) as engine:
                salt = f"{way}-{number}"
                asked = shape if number >= 0 else attrs.evolve(shape, turns=WARMING)
                turns = await talk(made(engine, family), asked, block, salt, seed=number + 1)
            if number >= 0:
                found[way].append(turns)
            step(f"{way}, conversation {number + 1} of {rounds}")
    return Found(block, shape, found)


def plain(found: Found) -> dict[str, Any]:
    """Return what was found as JSON data; times are seconds."""
    sums = {way: found.sums(way) for way in WAYS}
    first = {way: [found.first(way, turn) for turn in range(found.shape.turns)] for way in WAYS}
    late = {way: found.late(way) for way in WAYS}
    return {**attrs.asdict(found), "reached": sums, "first": first, "late": late}


def printed(console: Console, found: Found) -> None:
    """Print the turns of the last conversations, and what all amount to."""
    console.print(f"blocks of {found.block} ids; ids by turn, and the median ms to the first sampled id")
    table = Table(box=None, pad_edge=False)
    for name in ("turn", *(f"{way} {what}" for way in WAYS for what in ("prompt", "held", "cached", "ms"))):
        table.add_column(name, justify="right", no_wrap=True)
    for turn in range(found.shape.turns):
        table.add_row(str(turn + 1), *(cell for way in WAYS for cell in _cells(found, way, turn)))
    console.print(table)
    for way in WAYS:
        parts = ", ".join(f"{value:.3f} {name}" for name, value in found.sums(way).items())
        console.print(f"{way}: cached ids: {parts}")
    late = {way: found.late(way) for way in WAYS}
    told = ", ".join(f"{way} {milli(seconds)}" for way, seconds in late.items())
    ratio = late[MITO] / late[TITO]
    console.print(f"median ms to the first id, later half of the turns: {told}, {ratio:.1f} times as long")


def _cells(found: Found, way: str, turn: int) -> tuple[str, ...]:
    one = found.rounds[way][-1][turn]
    return f"{one.prompt:,}", f"{one.held:,}", f"{one.cached:,}", milli(found.first(way, turn))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--turns", type=WholeRange(2), default=TURNS, show_default=True)
@click.option("--rounds", type=WholeRange(1), default=ROUNDS, show_default=True, help="Conversations a way.")
@click.option("--sampled", type=WholeRange(1), default=SAMPLED, show_default=True, help="Ids a turn.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@interruptible
def main(*, turns: int, rounds: int, sampled: int, as_json: bool) -> None:
    """Measure what of its prompts a real vLLM has in its prefix cache."""
    from tests.engines.vllm import vllm  # noqa: PLC0415  # what the tests start an engine with

    shape = Shape(turns=turns, words=WORDS, sampled=sampled)
    console = Console(stderr=True)
    with TemporaryDirectory() as folder, Progress(console=console) as progress:
        task = progress.add_task("starting vLLM", total=(1 + rounds) * len(WAYS))

        def step(said: str) -> None:
            progress.update(task, advance=1, description=said)

        with vllm(console.print, Path(folder) / "vllm.log", *FLAGS) as server:
            family = Family.load(server.family)
            found = anyio.run(measured, server.base_url, family, shape, rounds, step)
    if as_json:
        click.echo(json.dumps(plain(found), indent=1))
    else:
        printed(Console(width=None if sys.stdout.isatty() else 120), found)


if __name__ == "__main__":
    main()
