"""The console that commands print tables and progress to."""

from __future__ import annotations

from typing import NoReturn, Self

from rich.console import Console as RichConsole
from rich.console import ConsoleDimensions

MIN_COLUMNS = 60
"""Every table of the commands fits in this width; a narrower terminal breaks the lines itself."""


class Console(RichConsole):
    """A rich console that cuts nothing off in a narrow terminal, and does not exit on a broken pipe."""

    @property
    def roomy(self) -> bool:
        """Whether tables fit in the width, so that one may be drawn over the last one."""
        return super().size.width >= MIN_COLUMNS

    @property  # type: ignore[misc]  # the base class has a setter, which is not used
    def size(self) -> ConsoleDimensions:
        """Columns and lines; never fewer columns than tables need."""
        size = super().size
        return ConsoleDimensions(max(size.width, MIN_COLUMNS), size.height)

    @classmethod
    def plain(cls) -> Self:
        """Return a console that marks nothing up; a file or a pipe gets lines of 160 characters."""
        console = cls(highlight=False, emoji=False, markup=False)
        if console.is_terminal:
            return console
        return cls(highlight=False, emoji=False, markup=False, width=160)

    def on_broken_pipe(self) -> NoReturn:
        """Raise `BrokenPipeError`. Rich would exit with 1: here that a command found something."""
        raise BrokenPipeError
