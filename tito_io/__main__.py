"""The `tito` command, or one line about what it needs."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from .cli import tito  # noqa: PLC0415  # what it needs is an extra, and may be missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tito"):
            raise
        sys.exit(f"tito needs {error.name}: install it with  pip install 'tito-kernel[io]', or '.[io]' here")
    tito()


if __name__ == "__main__":
    main()
