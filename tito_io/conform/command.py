"""The command `tito conform`: ask a program for the answers to the conformance vectors, and judge them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from tito_core import TitoError
from tito_io.cli.errors import BAD_INPUT, fail
from tito_io.cli.options import (
    HELP_NAMES,
    FiniteRange,
    check_folder,
    choices,
    html_option,
    json_option,
    write_output,
)
from tito_io.cli.process import output_may_close

if TYPE_CHECKING:
    from .report import Report

FAILED = 1
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
    timeout: float
    accept: tuple[str, ...]
    differences: bool
    as_json: bool
    html: Path | None


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
@json_option("Print one JSON object with every verdict. Default: counts by set, and a line for each failure.")
@html_option("Also write a page, complete in itself. Default: no page.")
def conform(**values: Any) -> None:
    """Judge a program's next prompts by test vectors.

    COMMAND is started once. It reads a question, a JSON object, from each line of its standard input, and
    writes its answer to a line of its standard output. Write `--` before it.
    """
    from .report import to_html  # noqa: PLC0415  # --help has no time for it

    options = ConformOptions(**values)
    try:
        report = _report(options)
        if options.html is not None:
            write_output("--html", options.html, to_html(report))
    except TitoError as error:
        fail(error, BAD_INPUT)
    _print(report, options)
    failed = [one for one in report.failed if one.verdict.value.replace(" ", "-") not in options.accept]
    sys.exit(FAILED if failed else 0)


def _report(options: ConformOptions) -> Report:
    from rich.progress import track  # noqa: PLC0415  # likewise

    from tito_io.cli.console import Console  # noqa: PLC0415  # likewise

    from .run import report_on, selected  # noqa: PLC0415  # likewise

    check_folder("--html", options.html)
    console = Console(stderr=True)
    vectors = track(
        selected(options.vectors, options.only),
        "asking",
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    return report_on(options.command, shlex.join(options.command), vectors, options.timeout)


def _print(report: Report, options: ConformOptions) -> None:
    """Print a report: its counts and failures, or all of it as JSON."""
    from tito_io.cli.console import Console  # noqa: PLC0415  # likewise

    from .report import failures, table, to_json  # noqa: PLC0415  # likewise

    with output_may_close():
        if options.as_json:
            click.echo(to_json(report).rstrip("\n"))
            return
        console = Console.plain()
        console.print(report.heading, soft_wrap=True)
        console.print(table(report))
        console.print(failures(report, differences=options.differences), end="", soft_wrap=True)
