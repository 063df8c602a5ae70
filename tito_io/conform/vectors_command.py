"""The command `tito vectors`: write the conformance vectors."""

from __future__ import annotations

from pathlib import Path

import click

from tito_core import InputError, TitoError
from tito_io.cli.errors import BAD_INPUT, fail
from tito_io.cli.options import HELP_NAMES, NamedPath
from tito_io.cli.process import output_may_close

STATUSES = """\b
Exit status:
  0    the vectors were written
  2    a file cannot be written, or another file has its name
  130  interrupted
"""


@click.command(epilog=STATUSES, context_settings=HELP_NAMES)
@click.option(
    "-o",
    "--output",
    type=NamedPath(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a .jsonl file for each set, the JSON schema and a README into this folder, which is made if "
    "it is missing. A file there that `tito vectors` did not write is not replaced. Default: all vectors go "
    "to standard output.",
)
def vectors(output: Path | None) -> None:
    """Write language-neutral test vectors of next prompts.

    Each vector is a JSON object on a line: a chat template, a toy tokenizer, sampled turns and the next
    request, with the ids that are right, or the reason of a refusal. `tito conform` asks a program for them.
    """
    from .vector import SHIPPED, line, make_vectors, write  # noqa: PLC0415  # --help has no time for it

    if output is None:
        with output_may_close():
            for one in make_vectors():
                click.echo(line(one), nl=False)
        return
    try:
        counts = write(output)
    except OSError as error:
        fail(InputError(f"-o {output}: cannot be written: {error.strerror}"), BAD_INPUT)
    except TitoError as error:
        fail(error, BAD_INPUT)
    for name, count in counts.items():
        click.echo(f"{output / name}.jsonl: {count} vectors")
    for name in SHIPPED:
        click.echo(output / name)
