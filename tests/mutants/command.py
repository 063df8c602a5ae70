"""The command `python -m tests.mutants`."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from benchmarks.command import interruptible
from benchmarks.intervals import wilson
from tests.faults.children import Children
from tests.faults.fault import ROOT
from tests.mutants.mutant import Mutant, drawn
from tests.mutants.room import ROOMS, reached
from tests.mutants.score import equivalent
from tests.mutants.trial import judged, judged_in_forks, rounds_of


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("room", type=click.Choice(sorted(ROOMS)))
@click.option("--sample", type=click.IntRange(min=1), default=100, help="How many mutants; default 100.")
@click.option("--seed", type=int, default=0, help="Which mutants are drawn; default 0.")
@click.option("--only", default="", help="Try only drawn mutants whose file and change hold this text.")
@click.option(
    "--most",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    help="Seconds of tests to run for one mutant, the fastest tests first; default 120.",
)
@interruptible
def main(*, room: str, sample: int, seed: int, only: str, most: float) -> None:
    """Draw a sample of mutants in one part of the project, and print those that survive, and the score.

    Lines are drawn, none twice, and one mutant of each. A mutant is killed if a test that reaches the line
    fails, cannot be loaded, or hangs: slow tests alone kill nothing. Judged equivalents do not count.
    """
    console, known = Console(highlight=False, soft_wrap=True), equivalent()
    chosen = drawn(ROOT, ROOMS[room].files(ROOT), sample, Random(seed))  # noqa: S311  # no secrets
    chosen = [mutant for mutant in chosen if only in f"{mutant.file} {mutant.change}"]
    if not chosen:
        raise click.UsageError(f"no drawn mutant holds {only!r:.60}: give other words, or a larger --sample")
    counted = [
        mutant
        for mutant in chosen
        if not any(one.is_one(mutant.file, mutant.change, mutant.function) for one in known)
    ]
    killed = tried(room, counted, most, console) if counted else 0
    low, high = wilson(killed, len(counted))
    share = f"{killed / len(counted):.1%} (95 % interval {low:.1%} to {high:.1%})" if counted else "none left"
    console.print(
        f"{room}, seed {seed}: {killed} of {len(counted)} mutants killed, {share}; "
        f"{len(chosen) - len(counted)} more are equivalent"
    )


def tried(room: str, mutants: list[Mutant], most: float, console: Console) -> int:
    """Try mutants in a copy of the project, print each result, and return how many are killed."""
    killed = 0
    with TemporaryDirectory(prefix="tito-mutants-") as place, Children() as children:
        home, folder = Path(place, "project"), Path(place)
        shutil.copytree(ROOT, home, ignore=shutil.ignore_patterns(".git", ".venv*", ".*_cache"))
        console.print(
            "measuring which tests reach which lines, where that is not known yet: 5 to 15 minutes at first",
            style="dim",
        )
        tests = reached(room, home, folder, children)
        rounds = [rounds_of(mutant, tests, ROOMS[room].unseen, most) for mutant in mutants]
        console.print("trying what changes functions alone, in forks of one process", style="dim")
        known = judged_in_forks(mutants, rounds, home, folder, children)
        for number, mutant in enumerate(mutants, 1):
            verdict = known.get(number - 1)
            if verdict is None or not verdict.killed:
                # What a function did on import is done in a fork: a survivor is loaded once more.
                chosen = rounds[number - 1] if verdict is None else rounds[number - 1][:1]
                again = judged(mutant, chosen, home, folder, children)
                verdict = again if verdict is None or again.killed else verdict
            killed += verdict.killed
            word = "killed  " if verdict.killed else "SURVIVED"
            console.print(
                f"{number:3}/{len(mutants)} {word} {mutant.file}:{mutant.lines.start} {verdict.why}",
                markup=False,
            )
            if not verdict.killed:
                console.print(mutant.diff, markup=False)
    return killed
