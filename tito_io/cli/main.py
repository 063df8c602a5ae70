"""The `tito` command, or one line about what is missing or went wrong around it."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

COMPLETION = "_TITO_COMPLETE"
"""Where a shell asks for the ends of words."""
BAD_INPUT, INTERRUPTED = 2, 130
"""Exit statuses. Nothing of the package is imported here: any of it may be missing, or be interrupted."""


def main() -> None:
    """Run the command line; 130 where it is interrupted, 2 where a file cannot be read or nothing written."""
    _unbreakable()
    try:
        status = _run()
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tito"):
            raise
        status = _missing(error.name)
    except KeyboardInterrupt:
        _complain("interrupted")
        status = INTERRUPTED
    except OSError as error:
        status = _lost(error) if error.filename is None else _barred(error)
    sys.exit(status)


def _unbreakable() -> None:
    """Have streams that are there, and that write what their encoding lacks as an escape."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123  # for as long as we run
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _complain(text: str) -> None:
    """Say a line on stderr; `errors.complain` without what it imports."""
    sys.stderr.write(f"tito: {text if text.isprintable() else ascii(text)[1:-1]}\n")


def _missing(module: str) -> int:
    """Say how to get what is missing."""
    from tito_io.extras import missing  # noqa: PLC0415  # it imports nothing, but an interrupt may come in between

    _complain(missing(module))
    return BAD_INPUT


def _run() -> int:
    """Run a command and return its exit status.

    Not by click's own `main`, which ends a broken pipe with 1: here that says that a command found something.
    """
    with deferred_interrupts():
        import click  # noqa: PLC0415  # an extra, which may be missing

        from .group import tito  # noqa: PLC0415  # likewise

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
    _complain(f"{error.filename}: {error.strerror}")
    return BAD_INPUT


def _lost(error: OSError) -> int:
    """Say that standard output takes nothing more, and let nobody try again on the way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if not isinstance(error, BrokenPipeError):
        _complain(f"{error.strerror or error}: what was to be told is lost")
    return BAD_INPUT


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let SIGINT wait for the end of the block, which then raises `KeyboardInterrupt`."""
    if not hasattr(signal, "pthread_sigmask"):  # a system without masks interrupts as it always did
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
