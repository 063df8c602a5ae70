"""The entry point of the `tito` command: missing modules, broken pipes and interrupts end with one line."""

from __future__ import annotations

import io
import os
import sys

from .process import deferred_interrupts, discard_output

COMPLETION = "_TITO_COMPLETE"
"""The variable by which a shell asks click to complete words."""
BAD_INPUT, INTERRUPTED = 2, 130
"""Exit statuses. Only what needs the standard library alone is imported at the top: an interrupt may come
meanwhile, and a library may be missing."""


def main() -> None:
    """Run the command line; exits with 130 when interrupted, and with 2 when a file cannot be used."""
    _repair_streams()
    try:
        status = _run()
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tito"):
            raise
        from tito_io.extras import missing  # noqa: PLC0415  # see above

        _complain(missing(error.name))
        status = BAD_INPUT
    except KeyboardInterrupt:
        _complain("interrupted")
        status = INTERRUPTED
    except OSError as error:
        if error.filename is not None:
            _complain(f"{error.filename}: {error.strerror}")
        else:  # standard output takes no more
            discard_output()
            if not isinstance(error, BrokenPipeError):
                _complain(f"standard output: {error.strerror or error}; the rest of the output is lost")
        status = BAD_INPUT
    sys.exit(status)


def _repair_streams() -> None:
    """Open streams that the caller closed, and escape characters that an encoding lacks."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123  # until the process ends
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _complain(text: str) -> None:
    """Write a line to stderr, as `errors.complain` does, without its imports."""
    sys.stderr.write(f"tito: {text if text.isprintable() else ascii(text)[1:-1]}\n")


def _run() -> int:
    """Run a command and return its exit status.

    Click's own `main` exits with 1 on a broken pipe. Here 1 means that a command found something.
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
