"""The `tito` command, or one line about what is missing or went wrong around it."""

from __future__ import annotations

import os
import sys

from .extras import missing
from .trouble import BAD_INPUT, INTERRUPTED, complain

COMPLETION = "_TITO_COMPLETE"
"""Where a shell asks for the ends of words."""


def main() -> None:
    """Run the command line; 130 where it is interrupted, 2 where a file cannot be read or nothing written."""
    try:
        status = _run()
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tito"):
            raise
        complain(missing(error.name))
        status = BAD_INPUT
    except KeyboardInterrupt:
        complain("interrupted")
        status = INTERRUPTED
    except OSError as error:
        status = _lost(error) if error.filename is None else _barred(error)
    sys.exit(status)


def _run() -> int:
    """Run a command and return its exit status.

    Not by click's own `main`, which ends a broken pipe with 1: here that says that a command found something.
    """
    import click  # noqa: PLC0415  # an extra, which may be missing

    from .cli import tito  # noqa: PLC0415  # likewise

    if COMPLETION in os.environ:
        tito(prog_name="tito")
    try:
        with tito.make_context("tito", sys.argv[1:]) as context:
            tito.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def _barred(error: OSError) -> int:
    """Say that a file or a folder cannot be looked into."""
    complain(f"{error.filename}: {error.strerror}")
    return BAD_INPUT


def _lost(error: OSError) -> int:
    """Say that standard output takes nothing more, and let nobody try again on the way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if not isinstance(error, BrokenPipeError):
        complain(f"{error.strerror or error}: what was to be told is lost")
    return BAD_INPUT


if __name__ == "__main__":
    main()
