"""The `tito` command, or one line about what is missing or went wrong around it."""

from __future__ import annotations

import os
import sys

EXTRAS = {
    "huggingface_hub": "hub",
    "prometheus_client": "serve",
    "pyarrow": "parquet",
    "ray": "ray",
    "redis": "redis",
    "safetensors": "miles",
    "uvicorn": "serve",
}
"""The extras that bring what a command may lack; `io` brings the rest."""
BAD_INPUT, INTERRUPTED = 2, 130


def main() -> None:
    """Run the command line; 130 where it is interrupted, 2 where nothing can be written."""
    try:
        status = _run()
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tito"):
            raise
        extra = EXTRAS.get(error.name.partition(".")[0], "io")
        hint = f"pip install 'tito-kernel[{extra}]', or '.[{extra}]' here"
        sys.exit(f"tito needs {error.name}: install it with  {hint}")
    except OSError as error:
        status = _lost(error)
    sys.exit(status)


def _run() -> int:
    """Run a command and return its exit status."""
    import click  # noqa: PLC0415  # an extra, which may be missing

    from .cli import tito  # noqa: PLC0415  # likewise

    try:
        tito(standalone_mode=False)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("tito: interrupted", err=True)
        return INTERRUPTED
    return 0


def _lost(error: OSError) -> int:
    """Say that standard output takes nothing more, and let nobody try again on the way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if not isinstance(error, BrokenPipeError):
        print(f"tito: {error.strerror or error}: what was to be told is lost", file=sys.stderr)  # noqa: T201  # click may be what is missing
    return BAD_INPUT


if __name__ == "__main__":
    main()
