"""Plant every fault and check that the tests fail:  python -m tests.faults [WORDS OF A DESCRIPTION]."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click
from rich.console import Console

from benchmarks.command import interruptible
from tests.faults import drift, forests, llamacpp, seams, serving, stitching
from tests.faults.children import Children
from tests.faults.fault import Fault

FAULTS = (*stitching.FAULTS, *seams.FAULTS, *forests.FAULTS, *llamacpp.FAULTS, *serving.FAULTS, *drift.FAULTS)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", nargs=-1)
@click.option("--one-a-file", is_flag=True, help="Plant only the first fault of each file: two minutes.")
@interruptible
def main(*, words: tuple[str, ...], one_a_file: bool) -> None:
    """Plant every fault, or those whose file and description hold WORDS, and check that the tests fail.

    Exits with 1 if any fault survives.
    """
    console, verdict = Console(), " ".join(words)
    chosen = [fault for fault in FAULTS if verdict in f"{fault.file}: {fault.what}"]
    if one_a_file:
        chosen = list({fault.file: fault for fault in reversed(chosen)}.values())
    if not chosen:
        raise click.UsageError(f"no fault is described with {verdict!r}")
    survivors = planted(chosen, console)
    console.print(f"{len(chosen) - survivors} of {len(chosen)} faults killed")
    sys.exit(survivors > 0)


def planted(chosen: list[Fault], console: Console) -> int:
    """Plant faults, print each result, and return how many survive."""
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool, Children() as children:
        results = pool.map(partial(Fault.killed, children=children), chosen)
        try:
            for number, (fault, killed) in enumerate(zip(chosen, results, strict=True), 1):
                survivors += not killed
                verdict = "killed  " if killed else "SURVIVED"
                console.print(f"{number:3}/{len(chosen)} {verdict} {fault.file}: {fault.what}", markup=False)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return survivors


if __name__ == "__main__":
    main()
