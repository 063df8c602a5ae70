"""The command that plants every fault and checks that the tests fail."""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click
from rich.console import Console

from benchmarks.command import interruptible
from tests.faults.children import Children
from tests.faults.fault import Fault, fails_anyway, faults

FAULTS = faults()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", nargs=-1)
@click.option(
    "--sample",
    type=click.IntRange(1),
    help="Plant only so many, from all over the list: 60 take five minutes.",
)
@interruptible
def main(*, words: tuple[str, ...], sample: int | None) -> None:
    """Plant every fault, or those whose file and description hold WORDS, and check that the tests fail.

    Exits with 1 if any fault survives.
    """
    console, verdict = Console(), " ".join(words)
    chosen = [fault for fault in FAULTS if verdict in f"{fault.file}: {fault.what}"]
    if sample:
        chosen = chosen[:: -(-len(chosen) // sample)]
    if not chosen:
        raise click.UsageError(f"no fault is described with {verdict!r}")
    found = planted(chosen, console)
    wrong = fails_anyway(sorted(found), {name for one in chosen for name in one.plugins})
    killed = sum(found.values())
    console.print(f"{killed} of {len(chosen)} faults killed")
    if wrong:
        console.print(f"{wrong[0]} fails without a fault, too, so that it shows none: mend it", markup=False)
    sys.exit(killed < len(chosen) or bool(wrong))


def planted(chosen: list[Fault], console: Console) -> Counter[str]:
    """Plant faults, and print each result; return the tests that failed, each with how many it killed."""
    found = Counter[str]()
    with ThreadPoolExecutor(os.cpu_count()) as pool, Children() as children:
        results = pool.map(partial(Fault.killed, children=children), chosen)
        try:
            for number, (fault, test) in enumerate(zip(chosen, results, strict=True), 1):
                found.update([test] if test else [])
                verdict = "killed  " if test else "SURVIVED"
                console.print(f"{number:3}/{len(chosen)} {verdict} {fault.file}: {fault.what}", markup=False)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return found
