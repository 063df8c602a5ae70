"""The command `tito vectors`: write the conformance vectors."""

from __future__ import annotations

from pathlib import Path

import click

from tito_io.cli.main import output_may_close
from tito_io.cli.options import HELP_NAMES

STATUSES = """\b
Exit status:
  0    the vectors were written
  2    a file cannot be written
  130  interrupted
"""


@click.command(epilog=STATUSES, context_settings=HELP_NAMES)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a .jsonl file for each set, the JSON schema and a README into this folder, which is made if "
    "it is missing. Default: all vectors go to standard output.",
)
def vectors(output: Path | None) -> None:
    """Write language-neutral test vectors of next prompts.

    Each vector is a JSON object on a line: a chat template, a toy tokenizer, sampled turns and the next
    request, with the ids that are right, or the reason of a refusal. `tito conform` asks a program for them.
    """
    from .vector import line, make_vectors, write  # noqa: PLC0415  # --help has no time for it

    if output is None:
        with output_may_close():
            for one in make_vectors():
                click.echo(line(one), nl=False)
        return
    for name, count in write(output).items():
        click.echo(f"{output / name}.jsonl: {count} vectors")
