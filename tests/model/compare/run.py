"""The long run: cases by seed and number, counted by kind, with progress on the terminal."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from multiprocessing import get_context

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from benchmarks.command import interruptible
from tests.model.compare.picks import SIZE
from tests.model.compare.report import ROOMS, disagreement, verdicts

BATCH = 50
"""Conversations of one batch; progress is shown and work is handed out batch by batch."""
Counts = Counter[tuple[str, str, str]]


def case_bytes(seed: int, number: int) -> tuple[str, bytes]:
    """Return the room and the bytes of a conversation. They depend on seed and number alone."""
    drawn = random.Random(f"{seed}.{number}")  # noqa: S311  # a seeded draw, to be repeated
    room = ROOMS[(0, 0, 0, 1, 2)[number % 5]]
    return room, drawn.randbytes(SIZE)


def batch(work: tuple[int, int, int]) -> tuple[Counts, list[int]]:
    """Return counts, and the numbers of conversations in which kernel and model disagree."""
    seed, start, stop = work
    counts, wrong = Counts(), list[int]()
    for number in range(start, stop):
        room, data = case_bytes(seed, number)
        found = list(verdicts(room, data))
        counts.update((room, one.kind, "" if one.wrong else one.what) for _, one, _, _ in found)
        wrong += [number] if any(one.wrong for _, one, _, _ in found) else []
    return counts, wrong


def rounds(seed: int, first: int, workers: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield work for all workers, without end, from the conversation `first` on."""
    size = 4 * workers * BATCH
    for begin in count(first, size):
        yield [(seed, start, start + BATCH) for start in range(begin, begin + size, BATCH)]


def show(console: Console, counts: Counts) -> None:
    """Print how often each verdict was reached."""
    table = Table("compared", "verdict", "reason", "cases", title="verdicts")
    for (room, kind, what), cases in sorted(counts.items(), key=lambda item: (item[0][0], -item[1])):
        table.add_row(room, kind, what, f"{cases:,}")
    console.print(table)


def replayed(console: Console, seed: int, number: int) -> bool:
    """Print the disagreement of one conversation, and its smallest form. Return whether there is one."""
    room, data = case_bytes(seed, number)
    console.rule(f"python -m tests.model --seed {seed} --replay {number}")
    found = disagreement(room, data)
    console.print(found or "kernel and model agree", markup=False, highlight=False, soft_wrap=True)
    return found is not None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--cases",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Stop once this many cases are compared. They come in rounds, of some 4,000 for two workers.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of the random draws; each seed gives other cases.",
)
@click.option(
    "--first",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The first conversation of the seed, where an earlier run was stopped.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default=True,
    help="Processes that compare at the same time.",
)
@click.option(
    "--replay",
    type=click.IntRange(min=0),
    help="Compare only this conversation of the seed, and print it if it disagrees.",
)
@interruptible
def main(*, cases: int, seed: int, first: int, workers: int, replay: int | None) -> None:
    """Ask the kernel and the executable model the same questions, and count the verdicts.

    Exits with 1 if they disagree anywhere.
    """
    console, given = Console(), click.get_current_context().get_parameter_source
    if replay is not None:
        if ParameterSource.COMMANDLINE in (given("cases"), given("workers")):
            raise click.UsageError("--replay N compares one conversation: leave --cases and --workers out")
        sys.exit(replayed(console, seed, replay))
    counts, wrong, began = Counts(), list[int](), time.monotonic()
    with get_context("spawn").Pool(workers) as pool, console.status("comparing") as status:
        for work in rounds(seed, first, workers):
            for found, numbers in pool.imap_unordered(batch, work):
                counts, wrong = counts + found, wrong + numbers
            done, hours = sum(counts.values()), (time.monotonic() - began) / 3600
            rate, reached = done / hours / 3600, work[-1][2]
            line = f"{done:,} of {cases:,} cases, {len(wrong)} disagree, {rate:.0f} cases/s, at {reached}"
            status.update(line)
            if not console.is_terminal:
                click.echo(line, err=True)
            if done >= cases or len(wrong) > 20:
                break
    show(console, counts)
    console.print(
        f"{sum(counts.values()):,} cases, seed {seed}, {first} to {work[-1][2]}, {hours:.3f} hours, "
        f"workers: {workers}, conversations in which kernel and model disagree: "
        f"{len(wrong)} {sorted(wrong)[:20] or ''}",
        soft_wrap=True,
    )
    for number in sorted(wrong)[:3]:
        replayed(console, seed, number)
    sys.exit(bool(wrong))
