"""The command that simulates the gateway under faults."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context

import click

from benchmarks.command import interruptible
from tests.simulate.gateways import known_template
from tests.simulate.planted import PLANTED, first_found
from tests.simulate.run import Result, run

EVERY = 100
"""After how many seeds a line of progress is printed."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=click.IntRange(min=0), help="Replay one seed and print its timeline.")
@click.option("--seeds", type=click.IntRange(min=1), help="Run this many seeds and print a summary.")
@click.option(
    "--first", type=click.IntRange(min=0), default=0, show_default=True, help="The first of the seeds."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=os.cpu_count(),
    show_default=True,
    help="How many processes.",
)
@click.option("--planted", is_flag=True, help="Print the first seed that finds each planted fault.")
@interruptible
def main(*, seed: int | None, seeds: int | None, first: int, workers: int, planted: bool) -> None:
    """Run the gateway in simulated processes, and check what its clients, its engine and its store saw.

    The same seed gives the same timeline. Exits with 1 if a history contradicts the documentation, or if a
    planted fault is not found.
    """
    if seed is not None and (seeds is not None or planted or first):
        raise click.UsageError("--seed N replays one seed: leave --seeds, --first and --planted out")
    if planted:
        sys.exit(_planted(seeds or 500))
    if seed is not None:
        sys.exit(_one(seed))
    if seeds is None:
        raise click.UsageError("give --seed N, --seeds N or --planted")
    sys.exit(_many(range(first, first + seeds), workers))


def _one(seed: int) -> int:
    result = run(seed)
    click.echo(result.timeline, nl=False)
    for text in result.violations:
        click.echo(f"VIOLATION: {text}")
    click.echo(f"seed {seed}: violations: {len(result.violations)}; {_summary(Counter(result.counts))}")
    return bool(result.violations)


def _many(seeds: range, workers: int) -> int:
    bad, counts = list[Result](), Counter[str]()
    for number, result in enumerate(results(seeds, workers), 1):
        counts.update(result.counts)
        if result.violations:
            bad.append(result)
            click.echo(f"seed {result.seed} ({result.setting})")
            for text in result.violations:
                click.echo(f"  {text}")
        if number % EVERY == 0:
            click.echo(f"{number}/{len(seeds)} seeds, {len(bad)} with violations", err=True)
    click.echo(f"seeds: {len(seeds)}, with violations: {len(bad)}; {_summary(counts)}")
    return bool(bad)


def results(seeds: range, workers: int) -> Iterator[Result]:
    """Yield the results of seeds, in their order."""
    with get_context("spawn").Pool(workers, _prepare) as pool:  # its processes end with the block
        yield from pool.imap(run_brief, seeds, chunksize=5)


def run_brief(seed: int) -> Result:
    """Run a seed; the timeline stays here, where it can be had again."""
    result = run(seed)
    return Result(
        seed=seed, setting=result.setting, violations=result.violations, timeline="", counts=result.counts
    )


def _prepare() -> None:
    known_template()
    gc.collect()
    gc.freeze()  # each seed ends with a collection, which need not look at modules again


def _summary(counts: Counter[str]) -> str:
    """Return counts by name; the page about the simulation says what each name counts."""
    return ", ".join(f"{name}: {count}" for name, count in counts.items())


def _planted(most: int) -> int:
    missed = 0
    for fault in PLANTED:
        seed = first_found(fault, most)
        missed += seed is None
        found = f"found by seed {seed} (seeds run: {(seed or 0) + 1})"
        verdict = f"not found (seeds run: {most})" if seed is None else found
        click.echo(f"{fault.what}: {verdict}")
    return bool(missed)
