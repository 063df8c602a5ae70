"""The command that kills real processes while clients take turns."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import gettempdir

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.command import interruptible
from tests.kill.kinds import KINDS, Kind
from tests.kill.rounds import Outcome, play, rounds
from tests.simulate.history import History

NO_REDIS = "no Redis server: put one on the path, or name it in TITO_REDIS_SERVER"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kills", type=click.IntRange(min=1), default=300, show_default=True, help="How many kills.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Decides the moments.")
@click.option(
    "--kind",
    "names",
    type=click.Choice(list(KINDS)),
    multiple=True,
    help="What is killed; may be given more than once. "
    + " ".join(f"{one.name}: {one.what}." for one in KINDS.values())
    + " Default: all of them, the same number of times.",
)
@click.option(
    "--clients", type=click.IntRange(min=1), default=12, show_default=True, help="How many clients at once."
)
@interruptible
def main(*, kills: int, seed: int, names: tuple[str, ...], clients: int) -> None:
    """Kill real gateways and Redis at random moments, and compare what clients received with what is stored.

    Clients ask again until they have an answer. Exits with 1 if a turn that a client received is lost, is
    trained twice or has other ids, or if anything else contradicts the documentation. The seed decides the
    moments; what the processes do in them differs from run to run.
    """
    asked = [KINDS[name] for name in dict.fromkeys(names or KINDS)]
    kinds = [one for one in asked if one.possible]
    if not kinds:
        raise click.UsageError(NO_REDIS)
    outcomes = {kind.name: Outcome() for kind in kinds}
    with shown(outcomes, [one for one in asked if not one.possible]):
        run(kinds, kills, clients, seed, outcomes)
    sys.exit(any(any(one.figures.values()) for one in outcomes.values()))


def run(kinds: Sequence[Kind], kills: int, clients: int, seed: int, outcomes: dict[str, Outcome]) -> None:
    """Play all rounds, print a line after each, and add what came of it to the outcomes."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    began, struck = time.monotonic(), 0
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("kills", total=kills)
        for number, (kind, count) in enumerate(rounds(kinds, kills)):
            own_seed = seed * 100_000 + number
            done = partial(progress.advance, task)
            history = asyncio.run(cancellable(play(kind, count, clients, own_seed, done)))
            outcome = Outcome.of(history, count)
            outcomes[kind.name] += outcome
            struck += count
            left = (time.monotonic() - began) / struck * (kills - struck) / 60
            console.print(f"{kind.name}: {words(outcome)} ({struck}/{kills} kills, {left:.0f} minutes left)")
            if outcome.found:
                file = Path(gettempdir(), f"tito-kill-{kind.name}-{own_seed}.txt")
                file.write_text(history.text())
                console.print(*outcome.found, f"what happened: {file}", sep="\n", markup=False)


async def cancellable(work: Awaitable[History]) -> History:
    """Let SIGTERM cancel the work, as asyncio lets SIGINT: then all processes are ended."""
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    return await work


def words(outcome: Outcome) -> str:
    """Return an outcome in a line."""
    figures = ", ".join(f"{name}: {count}" for name, count in outcome.figures.items())
    return f"kills: {outcome.kills}, acknowledged turns: {outcome.acknowledged}, {figures}"


@contextmanager
def shown(outcomes: Mapping[str, Outcome], left_out: Sequence[Kind]) -> Iterator[None]:
    """Print a table of the outcomes at the end, also where a run is interrupted, and what was left out."""
    try:
        yield
    finally:
        console = Console(highlight=False, soft_wrap=True)
        table = Table("kind", "kills", "acknowledged", *Outcome().figures)
        total = sum(outcomes.values(), Outcome())
        for name, one in [*outcomes.items(), ("in all", total)]:
            table.add_row(name, *map(str, (one.kills, one.acknowledged, *one.figures.values())))
        for kind in left_out:
            table.add_row(kind.name, "left out")
        console.print(table)
        console.print(words(total))
        if left_out:
            console.print(f"left out, and not tried: {', '.join(one.name for one in left_out)}: {NO_REDIS}")
