"""The console of stdout: a reader who left is an error like any other, and no exit status of its own."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console as Rich


class Console(Rich):
    """Raises `BrokenPipeError` where rich would end with 1, which says that something was found."""

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to whoever runs the command."""
        raise BrokenPipeError
