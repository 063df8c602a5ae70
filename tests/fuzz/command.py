"""Fuzz the parsers of bytes:  python -m tests.fuzz TARGET... --minutes 5.

It needs the dependency group `fuzz`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import click

from benchmarks.command import interruptible
from tests.fuzz.targets import TARGETS
from tests.required import require
from tito_io.families.kept_files import cache_folder

MEGABYTES = 2048
"""What one process may take, of which some 400 are the code that is loaded."""
SECONDS = 10
"""How long one input may take."""
LONGEST = 16_384
"""Bytes of the longest input."""
EXECUTED = re.compile(rb"stat::number_of_executed_units:\s*(\d+)")


@attrs.frozen
class Run:
    """What one run found.

    Attributes:
        name: The target.
        executions: How many inputs were parsed; None where the process ended early.
        findings: Files with inputs that are findings.
    """

    name: str
    executions: int | None
    findings: tuple[Path, ...]

    def __str__(self) -> str:
        count = "ended early" if self.executions is None else f"{self.executions:,} executions"
        return f"{self.name}: {count}, {len(self.findings)} findings"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[TARGET]...", type=click.Choice(sorted(TARGETS)))
@click.option(
    "--minutes", type=click.FloatRange(min=0), default=1.0, help="Minutes for each target; default 1."
)
@click.option("--seed", type=int, default=0, help="The seed of libFuzzer; default 0: another one each time.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where inputs and findings are kept; default: `fuzz` in tito's cache folder.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Parse this one input, and stop.",
)
@interruptible
def main(
    *, names: tuple[str, ...], minutes: float, seed: int, folder: Path | None, replay: Path | None
) -> None:
    """Fuzz each TARGET, all by default. Inputs that reach new code are kept for the next run.

    Exits with 1 if there are findings: an exception that is not documented, 10 s for one input, or 2 GB.
    """
    if replay is not None:
        replayed(names or TARGETS, replay.read_bytes())
        return
    require("fuzz")
    kept = folder or default_folder()
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"the folder {kept} cannot be made: {error.strerror}") from None
    runs = [fuzz(name, kept / name, minutes, seed) for name in names or TARGETS]
    sys.exit(any(run.findings or run.executions is None for run in runs))


def replayed(names: Iterable[str], data: bytes) -> None:
    """Parse one input with each target, and print what became of it."""
    for name in names:
        click.echo(f"{name}: {'accepted' if TARGETS[name].run(data) else 'refused'}")


def default_folder() -> Path:
    """Return the folder that inputs are kept in."""
    root = cache_folder(os.environ, sys.platform)
    if root is None:
        raise click.UsageError("this user has no cache folder: give one with --folder")
    return root / "fuzz"


def fuzz(name: str, folder: Path, minutes: float, seed: int) -> Run:
    """Run one fuzzer in a process of its own, and print what it found."""
    corpus, findings = folder / "corpus", folder / "findings"
    for one in (corpus, findings):
        one.mkdir(parents=True, exist_ok=True)
    for place, data in enumerate(TARGETS[name].seeds):
        (corpus / f"seed-{place:02}").write_bytes(data)
    options = {
        "max_total_time": max(1, round(minutes * 60)),
        "max_len": LONGEST,
        "rss_limit_mb": MEGABYTES,
        "timeout": SECONDS,
        "artifact_prefix": f"{findings}/",
        "print_final_stats": 1,
        "seed": seed,
    }
    command = [sys.executable, "-m", "tests.fuzz.child", name, str(findings)]
    command += [f"-{option}={value}" for option, value in options.items()]
    # libFuzzer ends its process at once, so that the child cannot remove the files that it writes.
    with (folder / "log.txt").open("w+b") as log, TemporaryDirectory() as files:
        environment = {**os.environ, "TMPDIR": files}
        subprocess.run(
            [*command, str(corpus)], stdout=log, stderr=subprocess.STDOUT, env=environment, check=False
        )
        log.seek(0)
        executed = EXECUTED.search(log.read())
    found = tuple(sorted(path for path in findings.iterdir() if path.suffix != ".txt"))
    run = Run(name, int(executed[1]) if executed else None, found)
    click.echo(str(run))
    for path in (*found, *([folder / "log.txt"] if executed is None else [])):
        click.echo(f"  {path}")
    return run
