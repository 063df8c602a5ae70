"""The command `tito conform`: ask a program for the answers to the conformance vectors, and judge them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from tito_core import TitoError
from tito_io.atomic_write import write_atomically
from tito_io.cli.errors import BAD_INPUT, fail
from tito_io.cli.options import HELP_NAMES, FiniteRange, NamedPath, check_folder, choices, format_option
from tito_io.cli.process import output_may_close

if TYPE_CHECKING:
    from rich.text import Text

    from .report import Report

FAILED = 1
FORMATS = {
    "table": "counts by set, and a line for each failure",
    "json": "one object with every verdict",
    "html": "a page, complete in itself",
}
ACCEPTED = {
    "over-refused": "refusals where ids were expected",
    "not-offered": "operations that the program lacks",
}
STATUSES = """\b
Exit status:
  0    every answer is exact or rightly refused
  1    some answers are wrong, over-refused, not offered, or errors (see --accept)
  2    the vectors cannot be read, or the program cannot be started
  130  interrupted
"""


@attrs.frozen(kw_only=True)
class ConformOptions:
    """The options of `tito conform`, by their names."""

    command: tuple[str, ...]
    vectors: Path | None
    only: str
    form: str
    output: Path | None
    timeout: float
    accept: tuple[str, ...]
    differences: bool


class Conform(click.Command):
    """The command, with a hint where an option of COMMAND was taken for one of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        separated = "--" in args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if separated:
                raise
            text = error.format_message().rstrip(".")
            raise click.UsageError(
                f"{text}. If it belongs to COMMAND, write -- before COMMAND.", ctx
            ) from None


@click.command(cls=Conform, epilog=STATUSES, context_settings=HELP_NAMES)
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@click.option(
    "--vectors",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="A folder that `tito vectors` has written. Default: the vectors of this version.",
)
@click.option(
    "--only", default="", metavar="TEXT", help="Ask only vectors whose id has this text. Default: all."
)
@format_option(FORMATS, "table", "the verdicts")
@click.option(
    "-o",
    "--output",
    type=NamedPath(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the verdicts to this file, and print the counts. Default: standard output.",
)
@click.option(
    "--timeout",
    type=FiniteRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for each answer; the first one includes the start of the program.",
)
@click.option(
    "--accept",
    multiple=True,
    type=click.Choice(list(ACCEPTED)),
    help=f"A verdict that the exit status ignores. May be repeated. Default: none. {choices(ACCEPTED)}",
)
@click.option("--differences", is_flag=True, help="Show in the table where wrong ids differ, token by token.")
def conform(**values: Any) -> None:
    """Judge a program's next prompts by test vectors.

    COMMAND is started once. It reads a question, a JSON object, from each line of its standard input, and
    writes its answer to a line of its standard output. Write `--` before it.
    """
    options = ConformOptions(**values)
    try:
        report = _report(options)
    except TitoError as error:
        fail(error, BAD_INPUT)
    _print(report, options)
    failed = [one for one in report.failed if one.verdict.value.replace(" ", "-") not in options.accept]
    sys.exit(FAILED if failed else 0)


def _report(options: ConformOptions) -> Report:
    from .run import report_on, selected  # noqa: PLC0415  # --help has no time for it

    check_folder("--output", options.output)
    vectors = selected(options.vectors, options.only)
    return report_on(options.command, shlex.join(options.command), vectors, options.timeout)


def _print(report: Report, options: ConformOptions) -> None:
    """Print a report, or write it to a file and print its counts."""
    from .report import failures, to_html, to_json  # noqa: PLC0415  # likewise

    if options.form == "table":
        text = _table(report, failures(report, differences=options.differences), options)
    else:
        text = to_json(report) if options.form == "json" else to_html(report)
    if options.output is not None:
        write_atomically(options.output, text.rstrip("\n") + "\n")
        text = _table(report, f"verdicts: {options.output}", options)
    with output_may_close():
        click.echo(text.rstrip("\n"))


def _table(report: Report, after: Text | str, options: ConformOptions) -> str:
    """Return the counts, and what is given after them."""
    from tito_io.cli.console import Console  # noqa: PLC0415  # likewise

    from .report import table  # noqa: PLC0415  # likewise

    console = Console.plain(for_file=options.output is not None)
    with console.capture() as captured:
        console.print(report.heading, soft_wrap=True)
        console.print(table(report))
        console.print(after, end="", soft_wrap=True)
    return captured.get()
