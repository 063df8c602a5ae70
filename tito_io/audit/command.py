"""The command `tito audit`: compare stored ids with a fresh render of the messages, and explain drift."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import orjson

from tito_core import InputError, TitoError
from tito_io.cli.errors import BAD_INPUT, complain, fail
from tito_io.cli.options import (
    HELP_NAMES,
    StoredFile,
    Time,
    WholeRange,
    as_option,
    choices,
    family_option,
    html_option,
    json_option,
    max_line_option,
    template_arg_option,
    template_args,
    write_output,
)
from tito_io.cli.process import output_may_close
from tito_io.cli.topics import TopicCommand

if TYPE_CHECKING:
    from tito_core.drift.breaks import Break
    from tito_io.samples.line_groups import ReadOptions
    from tito_io.samples.progress import RunProgress

    from .rendering import AuditRendering
    from .report import AuditReport

DRIFT, INCOMPLETE = 1, 3
GROUPS = {
    "id": "consecutive lines with the same id",
    "file": "all lines of the file",
    "line": "each line by itself",
}
FAIL_ON = {
    "breaks": "a prompt sent as messages differs from the ids in use",
    "hypothetical": "also a prompt sent as ids that would differ as messages",
}
TOPICS = {
    "Rendering": "template as tools template-arg date",
    "Reading": "from group id max-line ray",
    "Results": "block-size show fail-on json html",
}
"""Options by topic; those in none stand first."""
STATUSES = """\b
Exit status:
  0    no break: every prompt that was sent as messages repeats the ids that were used
  1    breaks were found; with --fail-on hypothetical also those that did not happen, because the
       prompts were sent as ids. Also if a first prompt, however it was sent, shares less than half of
       its ids with its rendering: --family is then another model, and no rates are shown
  2    bad input: options, file, model folder
  3    no break in what was compared, but not everything was: unreadable lines, prompts that the
       template rejects, with images whose place in the ids is unknown, or without messages, or
       nothing to compare
  130  interrupted; standard error says how far it was

\b
Rates. Each has this name in the table and on the page, and with _rate in the JSON.
  changed ids            of the sampled ids that a later prompt restates: those that differ in
                         that prompt when it is rendered from messages. No prompt restates the
                         last turn.
  broken turns           of the turns that a later prompt restates: those with a break
  drifted conversations  of all conversations: those with a break
  ids lost to merging    of the sampled ids of finished conversations that can be rendered: those
                         that a trainer loses if it renders them from messages and keeps the
                         turns up to the first difference. It may be above 0 without drift.
  cached ids lost        of the prompt ids that the engine's prefix cache has if prompts are sent
                         as ids: those that it does not have if they are sent as messages

\b
Causes. A break counts under the first one that holds; the others are shown as `also`.
  media        an image, or another medium, differs in content, number of ids or place
  rendering    the first prompt, or one sent as messages, is not this family's rendering
  tools        the break disappears with the tools and arguments of the turn before
  edited       the break disappears with the messages of the turn before: the harness edited
               history
  truncated    a turn that was cut short gets a close, or more, that it never sampled
  seam         the close or the stop differs, and nothing before it
  thinking     the message has its reasoning, the rendering does not
  whitespace   only white space differs
  parse        the break disappears if the raw text is sent: the parser lost or changed tool
               calls, reasoning or content
  rewritten    the break remains if the raw text is sent: the template writes history differently
  retokenized  the same text, other ids
  unknown      no rule applies
"""


@attrs.frozen(kw_only=True)
class AuditOptions:
    """The options of `tito audit`, by their names."""

    file: Path
    family: Path
    template: str | None
    rendered_as: str | None
    tools: Path | None
    template_arg: tuple[str, ...]
    date: datetime | None
    form: str | None
    group: str
    id_field: str | None
    max_line: int
    block_size: int
    show: int
    fail_on: str
    ray: str | None
    as_json: bool
    html: Path | None

    def rendering(self) -> AuditRendering:
        """Return what to render with."""
        from .rendering import AuditRendering  # noqa: PLC0415  # heavy, and not needed for --help

        return AuditRendering(
            family=self.family,
            template=self.template,
            tools=None if self.tools is None else _read_tools(self.tools),
            template_args=template_args("--template-arg", self.template_arg),
            date=self.date,
            rendered_as=self.engine,
        )

    @cached_property
    def engine(self) -> str:
        """The engine whose prompts are rendered: the one that was given, else the one that the file names."""
        from .rendering import named_engine  # noqa: PLC0415  # heavy, and not needed for --help

        return self.rendered_as or named_engine(self.file)


@click.command(cls=TopicCommand, topics=TOPICS, epilog=STATUSES, context_settings=HELP_NAMES)
@click.argument("file", type=StoredFile())
@family_option("The model whose chat template and tokenizer render the messages.", required=True)
@click.option(
    "--template",
    help="The chat template: a name in the model folder, or a .jinja file. Default: the folder's default.",
)
@as_option("the engine that the file names, else transformers")
@click.option(
    "--tools",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file with a JSON list of tools, for calls that do not store theirs. Default: no tools.",
)
@template_arg_option("--template-arg", whose=" for calls that do not store theirs")
@click.option(
    "--date",
    type=Time(),
    metavar="TIME",
    help="The time that templates print, such as 2026-01-31 or 2026-01-31T12:00:00. Default: now.",
)
@click.option(
    "--from",
    "form",
    metavar="NAME",
    help="The format of FILE; `tito samples --help` lists them. Default: recognized by the first readable "
    "line.",
)
@click.option(
    "--group",
    type=click.Choice(list(GROUPS)),
    default="id",
    show_default=True,
    help=f"Which lines are one conversation. {choices(GROUPS)}",
)
@click.option(
    "--id",
    "id_field",
    metavar="FIELD",
    help="The field with a line's conversation id; dots lead into objects, as in meta.session. Default: the "
    "field of the format.",
)
@max_line_option
@click.option(
    "--block-size",
    type=WholeRange(1),
    default=16,
    show_default=True,
    help="Ids in a block of the engine's prefix cache.",
)
@click.option(
    "--show",
    type=WholeRange(0),
    default=20,
    show_default=True,
    help="How many breaks to show at most, the causes in turn.",
)
@click.option(
    "--fail-on",
    type=click.Choice(list(FAIL_ON)),
    default="breaks",
    show_default=True,
    help=f"Which breaks end with status 1. {choices(FAIL_ON)}",
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Audit on a Ray cluster. host:port: that cluster. auto: the one Ray finds. local: start one here. "
    "Default: no cluster.",
)
@json_option("Print one JSON object per break, then one with the summary. Default: a table.")
@html_option("Also write a page with the diffs, complete in itself. Default: no page.")
def audit(**values: Any) -> None:
    """Compare stored ids with a fresh render of their messages.

    Every later prompt of FILE (- is the standard input) is rendered and tokenized as by a stack that sends
    messages. The ids are compared with those that the engine saw and sampled, and each difference is
    explained.
    """
    options = AuditOptions(**values)
    try:
        report = _audited(options)
        if options.html is not None:
            _write_page(options.html, report, options)
    except TitoError as error:
        fail(error, BAD_INPUT)
    with output_may_close():
        _print_report(report, as_json=options.as_json)
    complete = 0 if report.whole else INCOMPLETE
    failing = report.fails(hypothetical=options.fail_on == "hypothetical")
    sys.exit(DRIFT if failing else complete)


def _print_report(report: AuditReport, *, as_json: bool) -> None:
    from tito_io.cli.console import Console  # noqa: PLC0415  # heavy, and not needed for --help

    from .report import summary  # noqa: PLC0415  # likewise
    from .table import table  # noqa: PLC0415  # likewise

    if as_json:
        click.echo(orjson.dumps({"summary": summary(report)}).decode())
    else:
        Console().print(table(report))


def _audited(options: AuditOptions) -> AuditReport:
    """Return the report; an interrupt is reported with what was done until then."""
    from tito_core.drift.breaks import BreakSelection  # noqa: PLC0415  # heavy, and not needed for --help
    from tito_io.families.preprocessing.engines import rules_for  # noqa: PLC0415  # likewise
    from tito_io.samples.line_groups import Group, ReadOptions  # noqa: PLC0415  # heavy, and not needed for --help
    from tito_io.samples.progress import counted, shown_progress  # noqa: PLC0415  # likewise
    from tito_io.samples.ray import rows_stdout  # noqa: PLC0415  # likewise

    from .report import AuditReport, break_to_json  # noqa: PLC0415  # likewise

    reading = ReadOptions(
        form=options.form,
        group=Group[options.group.upper()],
        id_field=options.id_field,
        max_line=options.max_line,
    )
    report = AuditReport(choice=BreakSelection(options.show))
    with (
        shown_progress(options.file, prints_rows=options.as_json) as progress,
        rows_stdout(options.ray) as stdout,
    ):

        def on_break(one: Break) -> None:
            if options.as_json:
                with output_may_close():
                    click.echo(orjson.dumps(break_to_json(one)).decode(), file=stdout)

        try:
            for report in _growing_reports(options, reading, on_break, progress):  # noqa: B007  # the last is used
                pass
        except KeyboardInterrupt:
            tally = report.tally
            audited, breaks = counted(tally.conversations, "conversation"), counted(tally.breaks, "break")
            complain(f"{options.file}: {progress}: {audited} audited, {breaks} found")
            raise
    return attrs.evolve(report, engine=rules_for(options.engine).engine)


def _growing_reports(
    options: AuditOptions, reading: ReadOptions, on_break: Callable[[Break], None], progress: RunProgress
) -> Iterator[AuditReport]:
    if options.ray is None:
        from tito_io.samples.read import conversations  # noqa: PLC0415  # heavy, and not needed for --help

        from .report import growing_reports  # noqa: PLC0415  # likewise

        return growing_reports(
            conversations(options.file, reading, progress),
            options.rendering().load(),
            block=options.block_size,
            show=options.show,
            on_break=on_break,
            progress=progress,
        )
    from . import distributed  # noqa: PLC0415  # Ray is heavier still

    work = distributed.AuditWork(
        rendering=attrs.evolve(options.rendering(), family=options.family.absolute()),
        reading=reading,
        block=options.block_size,
        show=options.show,
        every_break=options.as_json,
    )
    return distributed.growing_reports(options.ray, options.file, work, on_break, progress)


def _write_page(path: Path, report: AuditReport, options: AuditOptions) -> None:
    from .page import Heading, page  # noqa: PLC0415  # heavy, and not needed for --help

    heading = Heading(
        file=options.file.name,
        family=options.family.name or str(options.family),
        block=options.block_size,
        created=datetime.now().astimezone(),
    )
    write_output("--html", path, page(report, heading))


def _read_tools(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        tools = orjson.loads(path.read_bytes().removeprefix(BOM_UTF8))
    except OSError as error:
        raise InputError(f"--tools {path}: cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"--tools {path}: is not valid JSON: {error}") from None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise InputError(f"--tools {path}: expected a JSON list of tools, each one an object")
    return tools
