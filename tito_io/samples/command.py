"""The command `tito samples`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
import orjson
from rich.progress import Progress

from tito_core import InputError
from tito_core.samples import SampleOptions
from tito_io.cli.console import Console
from tito_io.cli.errors import BAD_INPUT, complain, fail
from tito_io.samples.forms.exchange import ID_FIELDS

from .conversation import Problem
from .forms import FORMS
from .line_groups import Group, ReadOptions
from .ray import aside
from .read import conversations
from .rows import ConversationRows, FileTally, made
from .sink import Sink, opened

SOME_UNREAD = 1
STATUSES = """\b
Exit status:
  0    every line was read
  1    some lines could not be read, or made no rows; the others did. Or all were read, and made no row
  2    bad input: options, no such file, a file of no known form
  130  interrupted
"""
MOST = "The most ids of a row."

F = TypeVar("F", bound=Callable[..., Any])


def _choice(kind: type[Enum]) -> click.Choice[str]:
    return click.Choice([member.name.lower() for member in kind])


def _told(kind: type[Enum]) -> str:
    """Return what each choice means."""
    return "; ".join(f"{member.name.lower()}: {member.value}" for member in kind) + "."


def _options(command: F) -> F:
    """Give a command the kernel's options, each by its own name."""
    for field in reversed(attrs.fields(SampleOptions)):
        flag = "--" + field.name.replace("_", "-")
        if isinstance(field.default, Enum):
            kind = type(field.default)
            default = field.default.name.lower()
            choice = click.option(
                flag, type=_choice(kind), default=default, show_default=True, help=_told(kind)
            )
        else:
            choice = click.option(flag, type=int, help=MOST)
        command = choice(command)
    return command


def options(given: dict[str, Any]) -> SampleOptions:
    """Return the kernel's options from names; raises its `InputError`."""
    chosen = {
        field.name: type(field.default).__members__[given[field.name].upper()]
        for field in attrs.fields(SampleOptions)
        if isinstance(field.default, Enum)
    }
    return SampleOptions(**{**given, **chosen})


@click.command(epilog=STATUSES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Where rows go: a .jsonl, .parquet (for Hugging Face datasets) or .safetensors (as Miles has it) "
    "file. JSON lines on standard output otherwise.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMS)),
    help="; ".join(f"{form.name}: {form.told}" for form in FORMS.values()) + ". Known by the first line.",
)
@click.option("--group", type=_choice(Group), default="id", show_default=True, help=_told(Group))
@click.option(
    "--id",
    "id_field",
    help="The field that names a line's conversation, such as meta.session. Otherwise it is the first there "
    f"is of {', '.join(ID_FIELDS)}.",
)
@_options
@click.option("--ray", help="Make rows on a Ray cluster: its address, `auto`, or `local` to start one.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="The summary as JSON: on standard output where rows go to a file, else on standard error.",
)
def samples(
    *,
    file: Path,
    output: Path | None,
    form: str | None,
    group: str,
    id_field: str | None,
    ray: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Turn stored trajectories into training rows.

    FILE holds an object a line (.gz and .zst are read as well): calls as tito writes them, requests with
    replies of engines, results or traces of verifiers, sessions of Miles. Every sampled id trains once over
    all rows, or the summary says why it does not. Lines of a conversation stand together; one that does not
    is reported, and so is every line that cannot be read.
    """
    try:
        reading = ReadOptions(form=form, group=Group[group.upper()], id_field=id_field)
        _apart(file, output)
        work = SamplesRun(file=file, reading=reading, options=options(given), ray=ray)
        with opened(output, sys.stdout.buffer, spare=True) as sink, aside(ray):
            tally = work.into(sink)
        sys.stdout.flush()
    except InputError as error:
        fail(error, BAD_INPUT)
    if tally.rowless is not None:
        complain(f"{file}: {tally.rowless}")
    _summarize(tally, file.name, as_json=as_json, aside=output is None)
    sys.exit(SOME_UNREAD if tally.problems or not tally.rows else 0)


def _apart(file: Path, output: Path | None) -> None:
    """Refuse to write the rows over the calls that they are made of."""
    if output is not None and output.exists() and file.exists() and output.samefile(file):
        raise InputError(f"{output} is what is read: name another file with --output")


@attrs.frozen(kw_only=True)
class SamplesRun:
    """One run of the command."""

    file: Path
    reading: ReadOptions
    options: SampleOptions
    ray: str | None

    def into(self, sink: Sink) -> FileTally:
        """Write every row; return the numbers."""
        tally = FileTally()
        with _progress(self.file) as tick:
            for one in self._made(tick):
                if isinstance(one, ConversationRows):
                    tally.join(one.tally)
                    self._write(one, sink, tally)
                else:
                    self._complain(one, tally)
        return tally

    def _made(self, tick: Callable[[int], None]) -> Iterator[ConversationRows | Problem]:
        if self.ray is None:
            return made(conversations(self.file, self.reading, tick), self.options)
        from .distributed import spread_over  # noqa: PLC0415  # Ray is heavy, and an extra

        return spread_over(self.ray, self.file, self.reading, self.options, tick)

    def _write(self, one: ConversationRows, sink: Sink, tally: FileTally) -> None:
        for entry in one.entries:
            try:
                sink.write(entry)
            except InputError as error:
                self._complain(Problem(entry.line, str(error)), tally)

    def _complain(self, problem: Problem, tally: FileTally) -> None:
        tally.problems += 1 + problem.more
        complain(f"{self.file}, {problem}")


@contextmanager
def _progress(file: Path) -> Iterator[Callable[[int], None]]:
    """Show how much of the file is read, on a terminal that shows no rows."""
    console = Console(stderr=True)
    if not (console.is_terminal and console.roomy and file.is_file()):
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(file.name, total=file.stat().st_size)
        yield lambda done: progress.update(task, completed=done)


def _summarize(tally: FileTally, title: str, *, as_json: bool, aside: bool) -> None:
    if as_json:
        click.echo(orjson.dumps(tally.to_json()).decode(), err=aside)
        return
    Console(stderr=True).print(tally.table(title))
