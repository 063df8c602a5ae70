"""The command `tito lint`: what chat templates do to sampled ids, before anything runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import click

from tito_core import Reason, TitoError
from tito_io.cli.errors import BAD_INPUT, complain, fail
from tito_io.cli.options import (
    HELP_NAMES,
    MODEL_KINDS,
    FiniteRange,
    as_option,
    check_folder,
    choices,
    format_option,
    html_option,
    json_option,
    template_arg_option,
    template_args,
    write_output,
)
from tito_io.cli.process import output_may_close
from tito_io.cli.topics import TopicCommand

from .budget import SECONDS
from .gate import FAIL_ON, Gate
from .report import LintReport, to_json
from .run import LintSettings, lint_subject
from .subject import LintError, Subject, SubjectOptions, subjects
from .verdict import CONTRADICTED

REFUSED = 1
REASONS = {
    Reason.TEMPLATE_REFUSED.name: "the template rejects the conversation",
    Reason.SWALLOWED.name: "a new message is dropped",
    Reason.ODD_STOP.name: "sampled stop is not the close",
    Reason.CLOSE_MISMATCH.name: "template closes turns differently",
    Reason.UNPROVEN_TAIL.name: "text after the turn unproven",
    CONTRADICTED: "an example contradicts the certificate",
}
FORMATS = {
    "text": "tables",
    "json": "a list with one object per template",
    "github": "annotations of a GitHub workflow",
    "sarif": "a SARIF 2.1.0 log, for code scanning",
    "junit": "JUnit's XML, for test reports",
}
TOPICS = {
    "Rendering": "tokenizer template as stop-id special-token arg seconds",
    "What fails": "accept baseline write-baseline fail-on",
    "Results": "format json diff html",
}
"""Options by topic."""
STATUSES = """\b
Exit status:
  0    every case is exact or kept; with --diff, the templates do the same
  1    some cases are refused or rejected (see --accept, --baseline), or kept with --fail-on; with
       --diff, something differs
  2    something could not be linted: a wrong path, a broken template, one beyond the limits, a wrong option
  130  interrupted
"""


@attrs.frozen(kw_only=True)
class LintOptions:
    """The options of `tito lint`, by their names."""

    paths: tuple[str, ...]
    tokenizer: Path | None
    template: str | None
    rendered_as: str | None
    stop_id: tuple[str, ...]
    special_token: tuple[str, ...]
    template_arg: tuple[str, ...]
    accept: tuple[str, ...]
    baseline: Path | None
    write_baseline: Path | None
    fail_on: tuple[str, ...]
    seconds: float
    form: str
    as_json: bool
    diff: bool
    html: Path | None

    def __attrs_post_init__(self) -> None:
        """Reject options that contradict each other."""
        if self.baseline is not None and self.write_baseline is not None:
            raise LintError(
                "--baseline and --write-baseline contradict each other: the first reads known cases, the "
                "second makes all cases of this run known; give one of them"
            )
        if self.tokenizer is not None and not any(path.endswith(".jinja") for path in self.paths):
            raise LintError(
                f"--tokenizer {self.tokenizer} has no effect: no PATH is a .jinja file, and model folders "
                "have tokenizers of their own; leave it out, or name the template's file"
            )
        if self.as_json and self.form not in ("text", "json"):
            raise LintError(f"--json and --format {self.form} contradict each other: give one of them")
        if not self.diff:
            return
        if len(self.paths) != 2:  # noqa: PLR2004  # a comparison
            raise LintError(f"--diff compares two templates, and {len(self.paths)} PATH is given: give two")
        for name in ("accept", "baseline", "write_baseline", "fail_on", "html"):
            if getattr(self, name):
                raise LintError(f"--{name.replace('_', '-')} has no effect with --diff: leave it out")
        if self.format not in ("text", "json"):
            raise LintError(f"--format {self.form} has no effect with --diff: give text or json")

    @property
    def format(self) -> str:
        """How the results are printed."""
        return "json" if self.as_json else self.form

    @property
    def subject_options(self) -> SubjectOptions:
        """Which templates to lint; raises `LintError` for an empty token."""
        if "" in self.special_token:
            raise LintError("--special-token is empty: give the token to add, such as <|im_end|>")
        return SubjectOptions(
            template=self.template,
            tokenizer=self.tokenizer,
            special=self.special_token,
            rendered_as=self.rendered_as,
        )

    @property
    def settings(self) -> LintSettings:
        """How to lint them; raises `InputError` for a malformed argument."""
        args = template_args("--arg", self.template_arg)
        return LintSettings(args=args, stops=self.stop_id, seconds=self.seconds)


@click.command(cls=TopicCommand, topics=TOPICS, epilog=STATUSES, context_settings=HELP_NAMES)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help=f"The model whose tokenizer is used for .jinja files, which have none: {MODEL_KINDS}. No default.",
)
@click.option(
    "--template",
    metavar="NAME",
    help="Lint only this template of each folder: its name or its file. Default: all templates.",
)
@as_option("messages go to the template as they came")
@click.option(
    "--stop-id",
    multiple=True,
    metavar="TOKEN",
    help="An id, or a token, that ends turns. May be repeated. Default: those of the model folder.",
)
@click.option(
    "--special-token",
    multiple=True,
    metavar="TOKEN",
    help="A special token to add if the vocabulary lacks it. May be repeated. Default: for .jinja files, the "
    "markers in the template.",
)
@template_arg_option("--arg")
@click.option(
    "--accept",
    multiple=True,
    type=click.Choice(list(REASONS)),
    help="A reason of refusals that the exit status ignores. May be repeated. Default: none. "
    f"{choices(REASONS)}",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="What `tito lint --format json` printed earlier: the exit status ignores the refusals in it. "
    "Default: no refusal is ignored.",
)
@click.option(
    "--write-baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write FILE, for --baseline in later runs. The exit status of this run ignores all cases. "
    "Default: no file.",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(list(FAIL_ON)),
    help=f"What fails beside refusals. May be repeated. Default: nothing. {choices(FAIL_ON)}",
)
@click.option(
    "--seconds",
    type=FiniteRange(0, min_open=True),
    default=SECONDS,
    show_default=True,
    help="Processor time for each template. A template that needs more is not linted.",
)
@format_option(FORMATS, "text", "the results")
@json_option("The same as --format json.")
@click.option(
    "--diff",
    is_flag=True,
    help="Compare two templates: print what the second PATH changes in seams, verdicts and histories. "
    "Default: each template by itself.",
)
@html_option("Also write a page, complete in itself. Default: no page.")
def lint(**values: Any) -> None:
    """Show what chat templates do to sampled ids.

    PATH is a model, all of whose templates are linted: a folder, a GGUF file, an installed package with one,
    or embedded. It may also be a .jinja file (with --tokenizer), or the id of a model on the Hugging Face
    hub. Each template is rendered with a tool and without. If it has a switch for
    thinking, it is rendered with that on and off, too.
    """
    try:
        options = LintOptions(**values)
        sys.exit(_diff(options) if options.diff else _lint(options))
    except TitoError as error:
        fail(error, BAD_INPUT)


def _lint(options: LintOptions) -> int:
    for name, file in (("--html", options.html), ("--write-baseline", options.write_baseline)):
        check_folder(name, file)
    gate = Gate.of(options.accept, options.baseline, options.fail_on)
    reports: list[LintReport] = []
    for report in _reports(options):
        if report.error is None and options.format == "text":
            from tito_io.cli.console import Console  # noqa: PLC0415  # what only some calls need is imported here

            from .table import show  # noqa: PLC0415  # likewise

            with output_may_close():
                show(report, Console.plain())
        # The templates of a folder share errors.
        elif report.error is not None and report.error not in {earlier.error for earlier in reports}:
            complain(report.error)
        reports.append(report)
    if options.html is not None:
        from .page import page  # noqa: PLC0415  # likewise

        write_output("--html", options.html, page(reports))
    if options.write_baseline is not None:
        write_output("--write-baseline", options.write_baseline, f"{_json(reports)}\n")
        gate = Gate.of(options.accept, options.write_baseline, options.fail_on)
    with output_may_close():
        _print_rest(reports, options.format, gate)
    return status(reports, gate)


def status(reports: Sequence[LintReport], gate: Gate) -> int:
    """Return the exit status of some reports."""
    if any(report.error is not None for report in reports):
        return BAD_INPUT
    return REFUSED if any(map(gate.fails, reports)) else 0


def _diff(options: LintOptions) -> int:
    """Print what two templates do differently, and return the exit status."""
    from .diff import differences  # noqa: PLC0415  # what only some calls need is imported here

    reports = list(_reports(options))
    for report in reports:
        if report.error is not None:
            raise LintError(report.error)
    if [report.path for report in reports] != list(options.paths):
        raise LintError(
            "--diff compares two templates, and a folder has several: choose with --template NAME"
        )
    found = differences(*reports)
    with output_may_close():
        if options.format == "json":
            click.echo(json.dumps([attrs.asdict(one) for one in found], ensure_ascii=False, indent=2))
        else:
            click.echo("\n".join(map(str, found)) or "the templates do the same in every case")
    return REFUSED if found else 0


def _reports(options: LintOptions) -> Iterator[LintReport]:
    """Yield the report of each template, showing progress."""
    settings, subject_options = options.settings, options.subject_options
    for path in options.paths:
        try:
            named = list(subjects(path, subject_options))
        except TitoError as error:
            text = str(error)
            yield LintReport(path=path, template="", error=text if path in text else f"{path}: {text}")
        else:
            yield from (_with_progress(subject, settings) for subject in named)


def _with_progress(subject: Subject, settings: LintSettings) -> LintReport:
    from rich.console import Console  # noqa: PLC0415  # likewise
    from rich.progress import Progress  # noqa: PLC0415  # likewise

    console = Console(stderr=True)
    progress = Progress(console=console, transient=True)
    with progress if console.is_terminal else nullcontext():  # rich 13 writes a line of a disabled one, too
        task = progress.add_task(f"{Path(subject.path).name} {subject.template}", total=1.0)
        return lint_subject(subject, settings, lambda done: progress.update(task, completed=done))


def _print_rest(reports: Sequence[LintReport], form: str, gate: Gate) -> None:
    """Print what follows the last template: the reports for programs, or the legend and what is new."""
    if form in ("github", "sarif", "junit"):
        from .results import github, junit, results, sarif  # noqa: PLC0415  # likewise

        if form == "github":
            click.echo(github(results(reports, gate)), nl=False)
        elif form == "sarif":
            click.echo(json.dumps(sarif(results(reports, gate)), indent=2))
        else:
            click.echo(junit(reports, gate))
    elif form == "json":
        click.echo(_json(reports))
    else:
        if any(report.looks for report in reports):
            from tito_io.cli.console import Console  # noqa: PLC0415  # likewise

            from .table import legend  # noqa: PLC0415  # likewise

            Console.plain().print(legend())
        summary = gate.summary(reports)
        if summary is not None:
            click.echo(summary)


def _json(reports: Sequence[LintReport]) -> str:
    import orjson  # noqa: PLC0415  # likewise

    return orjson.dumps([to_json(report) for report in reports], option=orjson.OPT_INDENT_2).decode()
