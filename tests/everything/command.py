"""The command: subject after subject, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest

from benchmarks.command import interruptible
from tests.environment import run
from tests.everything.result import Result, counted, keep, page, read
from tests.everything.subject import Subject, subjects
from tests.faults.fault import ROOT

PAGE = ROOT / "docs" / "reference" / "everything.md"


def tried(subject: Subject, seconds: float) -> Result:
    """Run the tests of a subject."""
    with TemporaryDirectory() as home:
        report = Path(home) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        variables = {**os.environ, **subject.variables}
        error = ""
        try:
            done = subprocess.run(
                [*command, *subject.paths], cwd=ROOT, env=variables, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            error = f"ended after {seconds:.0f} s"
        else:
            ran = done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            error = "" if ran else f"pytest ended with {done.returncode}"
        passed, failed, skipped = (0, (), {}) if error else counted(report, subject.variables)
    return Result(
        name=subject.name,
        versions=subject.versions,
        passed=passed,
        failed=failed,
        skipped=skipped,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=run("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD").strip(),
        error=error,
    )


def _chosen(names: tuple[str, ...]) -> list[Subject]:
    known = subjects()
    for name in names:
        if not any(name in one.name.split() for one in known):
            raise click.BadParameter(
                f"{name!r} is unknown: give words of {', '.join(one.name for one in known)}"
            )
    return [one for one in known if not names or any(name in one.name.split() for name in names)]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1)
@click.option("--again", is_flag=True, help="Also those of which a result is kept.")
@click.option("--list", "only_list", is_flag=True, help="Print the names, and try nothing.")
@click.option("--seconds", default=3600.0, show_default=True, help="Longest time of one of them.")
@interruptible
def main(*, names: tuple[str, ...], again: bool, only_list: bool, seconds: float) -> None:
    """Run the tests of real programs, all of them or those of NAMES, and write the page with the results.

    NAMES are words of what is tried, such as `vllm` or `agent`. Exits with 1 if a test failed.
    """
    chosen = _chosen(names)
    for subject in chosen:
        kept = read(subject.name)
        click.echo(f"{subject.name}: {'kept, ' + kept.date if kept else 'not tried yet'}", err=True)
        if only_list or (kept is not None and not again):
            continue
        keep(tried(subject, seconds))
        results = [found for one in subjects() if (found := read(one.name)) is not None]
        PAGE.write_text(page(results))
    ended = [found for one in chosen if (found := read(one.name)) is not None]
    sys.exit(any(one.failed or one.error for one in ended))
