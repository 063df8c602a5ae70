"""The command `tito samples`: turn stored trajectories into training rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

import attrs
import click
import orjson
from click.core import ParameterSource

from tito_core import InputError
from tito_core.samples import SampleOptions
from tito_io.cli.console import Console
from tito_io.cli.errors import BAD_INPUT, complain, fail
from tito_io.cli.options import HELP_NAMES, FiniteRange, StoredFile, choices, json_option, max_line_option
from tito_io.cli.topics import TopicCommand
from tito_io.samples.forms.exchange import ID_FIELDS

from .conversation import Problem
from .convert import WRITABLE, ConvertedTally, converted, require_lines, write_converted
from .forms import FORMS, StoredForm
from .line_groups import Group, ReadOptions
from .progress import RunProgress, counted, shown_progress
from .ray import rows_stdout
from .read import conversations
from .redaction import Redaction
from .rows import ConversationRows, FileTally, Tally, to_rows
from .sink import Sink, open_sink, output_file
from .trainer_columns import COLUMNS

SOME_UNREAD = 1
REDACTED = {
    "texts": "ids stay, and the model's tokenizer decodes them to the texts",
    "ids": "ids are numbered, too; equal ids stay equal",
}
"""What `--redact` replaces."""
TOPICS = {
    "Reading": "from group id max-line",
    "What is trained": "rows owner max-length cut truncated aborted empty retries auxiliary missing-row",
    "Rewards and weights": "rewards discount conversation",
    "Other outputs": "format expand redact",
}
"""Options by topic; those in none stand first."""
STATUSES = """\b
Exit status:
  0    every line was read
  1    some lines could not be read, or no row was made
  2    bad input: options, no such file, a file in no recognized format
  130  interrupted; standard error says how far it was
"""
HELP: Mapping[str, str] = {
    "rows": "What one row holds.",
    "owner": "Which of several rows trains a turn that they share.",
    "max_length": "Most ids per row. Default: no limit.",
    "cut": "Where a row above --max-length ends.",
    "rewards": "Which reward a row gets.",
    "discount": "Factor per later turn for `--rewards discounted`, from 0 to 1. Default: none.",
    "conversation": "Which calls share one weight and one reward.",
    "truncated": "What happens to a turn that was cut short, for example by length.",
    "aborted": "What happens to a turn whose finish reason is `abort`.",
    "empty": "What happens to a call that sampled nothing.",
    "retries": "Which of several turns after the same prompt ids to keep.",
    "auxiliary": "What happens to calls beside a conversation, such as for a title: alone and without tools.",
    "missing_row": "What to write where the engine sent no routed experts.",
}
"""What each option of the kernel does; the values of its enumeration say what the choices mean."""
NUMBERS: Mapping[str, Any] = {"max_length": click.IntRange(min=1), "discount": FiniteRange(0, 1)}
"""The types of the options that have no choices."""

F = TypeVar("F", bound=Callable[..., Any])


def _kernel_options(command: F) -> F:
    """Give a command one option for each field of `SampleOptions`."""
    for field in reversed(attrs.fields(SampleOptions)):
        flag = "--" + field.name.replace("_", "-")
        if isinstance(field.default, Enum):
            meanings = {member.name.lower(): member.value for member in type(field.default)}
            choice = click.option(
                flag,
                type=click.Choice(list(meanings)),
                default=field.default.name.lower(),
                show_default=True,
                help=f"{HELP[field.name]} {choices(meanings)}",
            )
        else:
            choice = click.option(flag, type=NUMBERS[field.name], help=HELP[field.name])
        command = choice(command)
    return command


def kernel_options(values: dict[str, Any]) -> SampleOptions:
    """Return the kernel's options from the names of their choices; raises its `InputError`."""
    discounted, discount = values["rewards"] == "discounted", values.get("discount")
    if discounted and discount is None:
        raise InputError("--rewards discounted needs --discount: give a factor from 0 to 1, such as 0.9")
    if not discounted and discount is not None:
        raise InputError(
            "--discount has an effect with --rewards discounted alone: add that, or leave it out"
        )
    if values["cut"] != SampleOptions().cut.name.lower() and values["max_length"] is None:
        raise InputError("--cut has an effect with --max-length alone: add that, or leave it out")
    choices = {
        field.name: type(field.default).__members__[values[field.name].upper()]
        for field in attrs.fields(SampleOptions)
        if isinstance(field.default, Enum)
    }
    return SampleOptions(**{**values, **choices})


@click.command(cls=TopicCommand, topics=TOPICS, epilog=STATUSES, context_settings=HELP_NAMES)
@click.argument("file", type=StoredFile())
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file for the rows; without a row no file is written. .jsonl: one JSON object per "
    "line. .parquet: for Hugging Face datasets. .safetensors: Miles' samples reply. Default: JSON lines on "
    "standard output.",
)
@click.option(
    "--from",
    "form",
    type=click.Choice(list(FORMS)),
    help=f"The format of FILE. {choices({form.name: form.description for form in FORMS.values()})} "
    "Default: recognized by the first readable line.",
)
@click.option(
    "--group",
    type=click.Choice([member.name.lower() for member in Group]),
    default="id",
    show_default=True,
    help=f"Which lines are one conversation. {choices({one.name.lower(): one.value for one in Group})}",
)
@click.option(
    "--id",
    "id_field",
    metavar="FIELD",
    help="The field with a line's conversation id; dots lead into objects, as in meta.session. "
    f"Default: the first field present of {', '.join(ID_FIELDS)}.",
)
@max_line_option
@_kernel_options
@click.option(
    "--columns",
    type=click.Choice(list(COLUMNS)),
    default=next(iter(COLUMNS)),
    show_default=True,
    help=f"The names of a row's columns. {choices({name: one.description for name, one in COLUMNS.items()})} "
    "For .jsonl and .parquet.",
)
@click.option(
    "--format",
    "target",
    type=click.Choice(list(WRITABLE)),
    help="Write the conversations in this format, and no rows. "
    f"{choices({name: form.description for name, form in WRITABLE.items()})} Default: write rows.",
)
@click.option(
    "--expand",
    is_flag=True,
    help="With `--format atif`: write the whole prompt's ids in every step. Default: those that follow the "
    "step before it.",
)
@click.option(
    "--redact",
    type=click.Choice(list(REDACTED)),
    help="With `--format`: replace texts by placeholders of the same shape, and leave out metadata and "
    f"routed experts. {choices(REDACTED)} Default: texts stay.",
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Make rows on a Ray cluster. host:port: that cluster. auto: the one Ray finds. local: start one "
    "here. Default: no cluster.",
)
@json_option(
    "Print the summary as JSON: on standard output with --output, else on standard error. "
    "Default: a table on standard error."
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
    **values: Any,
) -> None:
    """Turn stored trajectories into training rows.

    FILE has one JSON object per line, or is one object (.gz and .zst files are read as well; - is the
    standard input): calls that tito wrote, requests with engine replies, rollouts of verifiers, sessions of
    Miles, ATIF trajectories, or rollout details of Harbor. Every sampled id trains once over all rows, or the
    summary says why not. The lines of a conversation must follow each other. Every line that
    cannot be read is reported, and the others are used.
    """
    try:
        _require_other_file(file, output)
        columns, target, expand, redact, longest = (
            values.pop(name) for name in ("columns", "target", "expand", "redact", "max_line")
        )
        reading = ReadOptions(form=form, group=Group[group.upper()], id_field=id_field, max_line=longest)
        _require_effect(target, expand=expand, redact=redact)
        if target is not None:
            redaction = None if redact is None else Redaction(ids=redact == "ids")
            _convert(file, output, reading, WRITABLE[target], redaction, expand=expand, as_json=as_json)
        rows = partial(_rows, file, reading, kernel_options(values), ray)
        opened = open_sink(output, sys.stdout.buffer, keep_old=True, columns=COLUMNS[columns])
        with opened as sink, rows_stdout(ray):
            tally = _write_all(file, output, sink, rows)
        sys.stdout.flush()
    except InputError as error:
        fail(error, BAD_INPUT)
    if tally.no_rows_reason is not None:
        complain(f"{file}: {tally.no_rows_reason}")
    _finish(file, output, tally, as_json=as_json, complete=not tally.problems and tally.rows > 0)


def _finish(file: Path, output: Path | None, tally: Tally, *, as_json: bool, complete: bool) -> NoReturn:
    """Print the summary and exit."""
    if as_json:
        click.echo(orjson.dumps(tally.to_json()).decode(), err=output is None)
    else:
        Console(stderr=True).print(tally.table(file.name))
    sys.exit(0 if complete else SOME_UNREAD)


def _require_effect(target: str | None, *, expand: bool, redact: str | None) -> None:
    """Refuse options that would do nothing."""
    if redact is not None and target is None:
        raise InputError("--redact belongs to --format, which writes conversations: add --format tito")
    if expand and (target is None or not WRITABLE[target].expands):
        names = ", ".join(f"--format {name}" for name, form in WRITABLE.items() if form.expands)
        raise InputError(f"--expand has no effect here: it belongs to {names}")
    if target is None:
        return
    context = click.get_current_context()
    for name in ("ray", "columns", *(field.name for field in attrs.fields(SampleOptions))):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = "--" + name.replace("_", "-")
            raise InputError(
                f"{flag} has no effect with --format {target}, which writes no rows: leave it out"
            )


def _convert(
    file: Path,
    output: Path | None,
    reading: ReadOptions,
    form: StoredForm,
    redaction: Redaction | None,
    *,
    expand: bool,
    as_json: bool,
) -> NoReturn:
    """Write the conversations of a file in another format, print the summary and exit."""
    require_lines(output, form)
    tally = ConvertedTally()
    with shown_progress(file, prints_rows=output is None) as progress, _line_file(output, tally) as lines:
        stored = conversations(file, reading, progress)
        if redaction is not None:
            stored = redaction.conversations(stored)
        found = converted(stored, form, expand=expand)
        write_converted(lines, found, tally, lambda problem: complain(f"{file}, {problem}"))
    sys.stdout.flush()
    _finish(file, output, tally, as_json=as_json, complete=not tally.problems and tally.lines > 0)


@contextmanager
def _line_file(output: Path | None, tally: ConvertedTally) -> Iterator[BinaryIO]:
    if output is None:
        yield sys.stdout.buffer
        return
    with output_file(output) as (file, keep):
        yield file
        if not tally.lines:
            keep()


def _require_other_file(file: Path, output: Path | None) -> None:
    if output is not None and output.exists() and file.exists() and output.samefile(file):
        raise InputError(f"{output} is the file that is read: give another file with --output")


def _write_all(
    file: Path,
    output: Path | None,
    sink: Sink,
    rows: Callable[[RunProgress], Iterator[ConversationRows | Problem]],
) -> FileTally:
    """Write every row; return the counts. An interrupt is reported with what was done until then."""
    tally = FileTally()
    with shown_progress(file, prints_rows=output is None) as progress:
        try:
            for one in rows(progress):
                for problem in [one] if isinstance(one, Problem) else _written(one, sink):
                    tally.problems += 1 + problem.more
                    complain(f"{file}, {problem}")
                if isinstance(one, ConversationRows):
                    tally.join(one.tally)
        except KeyboardInterrupt:
            done = f"{counted(tally.conversations, 'conversation')}, {counted(tally.rows, 'row')}"
            where = "printed" if output is None else f"made; {output} was not written"
            complain(f"{file}: {progress}: {done} {where}")
            raise
    return tally


def _written(rows: ConversationRows, sink: Sink) -> Iterator[Problem]:
    """Write rows; yield a problem for each that this kind of file cannot hold."""
    for entry in rows.entries:
        try:
            sink.write(entry)
        except InputError as error:
            yield Problem(entry.line, str(error))


def _rows(
    file: Path, reading: ReadOptions, options: SampleOptions, ray: str | None, progress: RunProgress
) -> Iterator[ConversationRows | Problem]:
    if ray is None:
        return to_rows(conversations(file, reading, progress), options)
    from .distributed import spread_over  # noqa: PLC0415  # Ray is heavy, and an extra

    return spread_over(ray, file, reading, options, progress)
