"""`tito lint`: what chat templates do to sampled ids, before anything runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from tito_core import Reason, TitoError
from tito_io.cli.errors import BAD_INPUT, complain, fail
from tito_io.cli.options import FiniteRange

from .budget import SECONDS
from .report import LintReport
from .run import Wish, linted
from .subject import LintError, Subject, SubjectOptions, subjects

if TYPE_CHECKING:
    from tito_io.cli.console import Console

REFUSED = 1
REASONS = tuple(
    reason.name
    for reason in (
        Reason.TEMPLATE_REFUSED,
        Reason.SWALLOWED,
        Reason.ODD_STOP,
        Reason.CLOSE_MISMATCH,
        Reason.UNPROVEN_TAIL,
    )
)
STATUSES = """\b
Exit status:
  0    every case is exact
  1    some are refused (see --accept)
  2    something could not be linted: a wrong path, a broken or hostile template, a wrong option
  130  interrupted
"""


@attrs.frozen(kw_only=True)
class LintOptions:
    """What `tito lint` was asked to do."""

    paths: tuple[str, ...]
    tokenizer: Path | None
    template: str | None
    stop_id: tuple[str, ...]
    special_token: tuple[str, ...]
    arg: tuple[str, ...]
    accept: tuple[str, ...]
    seconds: float
    as_json: bool
    html: Path | None

    @property
    def wanted(self) -> SubjectOptions:
        """Which templates; raises `LintError` for a token of no letters."""
        if "" in self.special_token:
            raise LintError("--special-token is empty; name the token that is lacking")
        return SubjectOptions(template=self.template, tokenizer=self.tokenizer, special=self.special_token)

    @property
    def wish(self) -> Wish:
        """How to look into them; raises `LintError` for a malformed argument."""
        return Wish(args=dict(map(_arg, self.arg)), stops=self.stop_id, seconds=self.seconds)


@click.command(epilog=STATUSES)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="The model folder for bare .jinja files.")
@click.option("--template", help="Only this template of each folder, by its name or file.")
@click.option("--stop-id", multiple=True, help="An id or token that ends turns; else as the folder says.")
@click.option("--special-token", multiple=True, help="A special token to add where the vocabulary lacks it.")
@click.option(
    "--arg", multiple=True, metavar="NAME=VALUE", help="A template argument; VALUE is JSON or text."
)
@click.option(
    "--accept",
    multiple=True,
    type=click.Choice(REASONS),
    help="A reason of refusals that does not count for the exit status.",
)
@click.option(
    "--seconds",
    type=FiniteRange(0, min_open=True),
    default=SECONDS,
    show_default=True,
    help="Processor time for each template; one that wants more is refused as hostile.",
)
@click.option("--json", "as_json", is_flag=True, help="A list with an object for each template.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page to look at, complete in itself.")
def lint(**given: Any) -> None:
    """Show what chat templates do to sampled ids.

    PATH is a model folder, all of whose templates are looked into; a .jinja file (with --tokenizer); or the
    id of a model on the Hugging Face hub. Each template is rendered with a tool and without, and with
    thinking on and off where it has a switch for that.
    """
    options = LintOptions(**given)
    try:
        sys.exit(_lint(options))
    except TitoError as error:
        fail(error, BAD_INPUT)


def _lint(options: LintOptions) -> int:
    _check_page(options.html)
    reports: list[LintReport] = []
    for report in _reports(options):
        if report.error not in {earlier.error for earlier in reports} - {None}:
            _told(report, options)
        reports.append(report)
    if options.as_json:
        _print_json(reports)
    elif any(report.looks for report in reports):
        _print_legend()
    if options.html is not None:
        _write(options.html, reports)
    return status(reports, options.accept)


def status(reports: Sequence[LintReport], accepted: Sequence[str] = ()) -> int:
    """Return the exit status of some reports."""
    if any(report.error is not None for report in reports):
        return BAD_INPUT
    refused = any(one.refused and one.reason not in accepted for report in reports for one in report.findings)
    return REFUSED if refused else 0


def _reports(options: LintOptions) -> Iterator[LintReport]:
    """Yield the report of each template, showing progress."""
    wish = options.wish
    for path in options.paths:
        try:
            found = list(subjects(path, options.wanted))
        except TitoError as error:
            text = str(error)
            yield LintReport(path=path, template="", error=text if path in text else f"{path}: {text}")
            continue
        for subject in found:
            yield _with_progress(subject, wish)


def _with_progress(subject: Subject, wish: Wish) -> LintReport:
    from rich.console import Console  # noqa: PLC0415  # what only this needs is loaded here
    from rich.progress import Progress  # noqa: PLC0415  # likewise

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"{Path(subject.path).name} {subject.template}", total=1.0)
        return linted(subject, wish, lambda done: progress.update(task, completed=done))


def _told(report: LintReport, options: LintOptions) -> None:
    """Print one report, an error on stderr."""
    from .table import show  # noqa: PLC0415  # likewise

    if report.error is not None:
        complain(report.error)
    elif not options.as_json:
        show(report, _console())


def _print_json(reports: Sequence[LintReport]) -> None:
    import orjson  # noqa: PLC0415  # likewise

    from .report import data  # noqa: PLC0415  # likewise

    click.echo(orjson.dumps([data(report) for report in reports], option=orjson.OPT_INDENT_2).decode())


def _console() -> Console:
    """Return the console for stdout; what is no terminal has room."""
    from tito_io.cli.console import Console  # noqa: PLC0415  # likewise

    console = Console(highlight=False, emoji=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, emoji=False, markup=False, width=160)


def _print_legend() -> None:
    from .table import legend  # noqa: PLC0415  # likewise

    _console().print(legend())


def _check_page(file: Path | None) -> None:
    """Refuse a page that cannot be written before anything else is done."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise LintError(f"--html {file}: is no file in a folder that exists")


def _write(file: Path, reports: Sequence[LintReport]) -> None:
    from .page import page  # noqa: PLC0415  # likewise

    try:
        file.write_text(page(reports), encoding="utf-8")
    except OSError as error:
        raise LintError(f"--html {file}: cannot be written: {error.strerror}") from error


def _arg(given: str) -> tuple[str, Any]:
    """Return the name and the value of an argument.

    >>> _arg("enable_thinking=false"), _arg("reasoning_effort=high")
    (('enable_thinking', False), ('reasoning_effort', 'high'))
    """
    name, equals, text = given.partition("=")
    if not equals or not name.isidentifier():
        raise LintError(f"--arg {given}: must be NAME=VALUE, such as enable_thinking=false")
    try:
        return name, json.loads(text)
    except json.JSONDecodeError:
        return name, text
