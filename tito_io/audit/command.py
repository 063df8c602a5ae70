"""`tito audit`: drift explained."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import attrs
import click
import orjson

from tito_core import InputError, TitoError
from tito_io.cli.errors import BAD_INPUT, fail
from tito_io.cli.options import WholeRange

if TYPE_CHECKING:
    from tito_core.drift.breaks import Break
    from tito_io.samples.line_groups import ReadOptions

    from .rendering import AuditRendering
    from .report import AuditReport

DRIFT, INCOMPLETE = 1, 3
PYTHON = {"True": "true", "False": "false", "None": "null"}
"""What templates' arguments are in Python, and in JSON: a string in the place of false is true."""
STATUSES = """\b
Exit status:
  0    no drift: every prompt rendered from messages restates the ids that were there
  1    drift was found
  2    bad input: options, file, model folder
  3    no drift in what was compared, but something was not, or nothing was: lines that nobody
       could read, prompts that the template refuses, with media or without messages, no calls
  130  interrupted

\b
Closing figures: the parts of something that ids would have kept and messages do not.
  sampled ids change   of the sampled ids that a later prompt restates, those that it changes
                       when it is rendered from messages; no prompt restates a last turn
  turns break          of the turns that a later prompt restates, those with a break
  conversations drift  of all conversations, those with a break
  lost to merging      of the sampled ids of conversations that can be rendered when they are
                       finished, last turns too: those that a trainer loses who renders them so
                       and keeps the turns that stand unchanged at the beginning; what comes after
                       a first difference is lost, and it may be where no prompt drifts
  prefix cache lost    of the prompt ids that the engine's prefix cache has where prompts are sent
                       as ids, those that it has not where they are sent as messages

\b
Causes, in the order in which they are named: a break has the first that holds, others are `also`.
  rendering    the first prompt, or one sent by messages, is not this family's rendering
  tools        undone by rendering with the tools and arguments of the turn before
  edited       undone by the messages of the turn before: the harness edited history
  truncated    a turn that was cut short gets a close, or more, that it never sampled
  seam         the close or the stop differs, and nothing before it
  thinking     the message has its thinking, the rendering does not
  whitespace   white space differs, and nothing else
  parse        undone by sending the turn as the text that was sampled: calls, reasoning or
               content were lost or spelled otherwise on the way to the message
  rewritten    not undone so: the template writes history otherwise
  retokenized  the same text, other ids
  unknown      no rule tells
"""


@attrs.frozen(kw_only=True)
class AuditOptions:
    """What `tito audit` was asked to do."""

    file: Path
    family: Path
    template: str | None
    tools: Path | None
    template_arg: tuple[str, ...]
    date: datetime | None
    form: str | None
    group: str
    id_field: str | None
    block_size: int
    show: int
    ray: str | None
    as_json: bool
    html: Path | None

    def rendering(self) -> AuditRendering:
        """Return what to render with."""
        from .rendering import AuditRendering  # noqa: PLC0415  # heavy, and not needed for --help

        return AuditRendering(
            family=self.family,
            template=self.template,
            tools=None if self.tools is None else _tools(self.tools),
            template_args=_arguments(self.template_arg),
            date=self.date,
        )


@click.command(epilog=STATUSES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--family", type=click.Path(path_type=Path), required=True, help="The model folder to render with."
)
@click.option("--template", help="Which of the folder's templates, or a .jinja file.")
@click.option(
    "--tools",
    type=click.Path(path_type=Path),
    help="A JSON list of tools, for calls that do not say which they had.",
)
@click.option(
    "--template-arg",
    multiple=True,
    metavar="NAME=JSON",
    help="An argument for the template, for calls that do not say theirs: enable_thinking=false. Repeatable.",
)
@click.option("--date", type=click.DateTime(), help="The time that templates print; now where not given.")
@click.option(
    "--format", "form", help="How the file stores trajectories: see `tito samples`. Known by its first line."
)
@click.option(
    "--group",
    type=click.Choice(["id", "file", "line"]),
    default="id",
    show_default=True,
    help="Which lines are one conversation.",
)
@click.option("--id", "id_field", help="The field that names a line's conversation, such as meta.session.")
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
    help="How many breaks to show: some of each.",
)
@click.option("--ray", help="Audit on a Ray cluster: its address, `auto`, or `local` to start one.")
@click.option("--json", "as_json", is_flag=True, help="One object a break, then a summary object.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page with the diffs, whole in itself.",
)
def audit(**given: Any) -> None:
    """Render stored conversations from their messages, and explain each id that is not what it was.

    Every later prompt is rendered and tokenized as a stack would that sends messages, and compared with the
    ids that the engine saw and sampled.
    """
    options = AuditOptions(**given)
    try:
        report = _audited(options)
        if options.html is not None:
            _write_page(options.html, report, options)
    except TitoError as error:
        fail(error, BAD_INPUT)
    _show(report, options)
    sys.exit(status(report))


def status(report: AuditReport) -> int:
    """Return the exit status."""
    if report.tally.breaks:
        return DRIFT
    return 0 if report.whole else INCOMPLETE


def _audited(options: AuditOptions) -> AuditReport:
    from tito_io.samples.line_groups import Group, ReadOptions  # noqa: PLC0415  # heavy, and not needed for --help
    from tito_io.samples.ray import aside  # noqa: PLC0415  # likewise

    from .report import audit_file, to_json  # noqa: PLC0415  # heavy, and not needed for --help

    reading = ReadOptions(form=options.form, group=Group[options.group.upper()], id_field=options.id_field)
    with _progress(options.file) as tick, aside(options.ray) as out:
        each = (lambda one: _line(to_json(one), out)) if options.as_json else (lambda _: None)
        if options.ray is not None:
            return _spread(options, reading, each, tick)
        return audit_file(
            options.file,
            options.rendering().load(),
            reading=reading,
            block=options.block_size,
            show=options.show,
            each=each,
            tick=tick,
        )


def _spread(
    options: AuditOptions, reading: ReadOptions, each: Callable[[Break], None], tick: Callable[[int], None]
) -> AuditReport:
    from .distributed import AuditWork, spread_file  # noqa: PLC0415  # Ray is heavier still

    work = AuditWork(
        rendering=attrs.evolve(options.rendering(), family=options.family.absolute()),
        reading=reading,
        block=options.block_size,
        show=options.show,
        every_break=options.as_json,
    )
    return spread_file(str(options.ray), options.file, work, each, tick)


@contextmanager
def _progress(file: Path) -> Iterator[Callable[[int], None]]:
    """Show how much of the file is read, on a terminal."""
    from rich.console import Console  # noqa: PLC0415  # heavy, and not needed for --help
    from rich.progress import Progress  # noqa: PLC0415  # likewise

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("auditing", total=file.stat().st_size if file.is_file() else None)
        yield lambda done: progress.update(task, completed=done)


def _show(report: AuditReport, options: AuditOptions) -> None:
    if options.as_json:
        from .report import summary  # noqa: PLC0415  # heavy, and not needed for --help

        _line({"summary": summary(report)})
        return
    from tito_io.cli.console import Console  # noqa: PLC0415  # likewise

    from .table import table  # noqa: PLC0415  # likewise

    Console().print(table(report))


def _write_page(path: Path, report: AuditReport, options: AuditOptions) -> None:
    from .page import Heading, page  # noqa: PLC0415  # heavy, and not needed for --help

    family = options.family.name or str(options.family)
    now = datetime.now().astimezone()
    text = page(report, Heading(file=options.file.name, family=family, block=options.block_size, created=now))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _line(data: Mapping[str, Any], out: TextIO | None = None) -> None:
    click.echo(orjson.dumps(data).decode(), file=out)


def _tools(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        found = orjson.loads(path.read_bytes().removeprefix(BOM_UTF8))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: is no JSON: {error}") from None
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise InputError(f"{path}: give a JSON list of tools")
    return found


def _arguments(given: Sequence[str]) -> dict[str, Any]:
    """Read NAME=JSON; what is no JSON is a string, but for Python's words for what JSON has others for."""
    found: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name.isidentifier():
            raise InputError(f"--template-arg {one!r:.60}: give NAME=JSON, such as enable_thinking=false")
        if value in PYTHON:
            raise InputError(
                f"--template-arg {one!r:.60}: JSON writes {name}={PYTHON[value]}, and the text {value} "
                f"""{name}='"{value}"'"""
            )
        try:
            found[name] = orjson.loads(value)
        except orjson.JSONDecodeError:
            found[name] = value
    return found
