"""The console of a command: it loses no figures where it is narrow, and ends no command by itself."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console as Rich
from rich.console import ConsoleDimensions

LEAST = 60
"""So many columns every table here fits in; a narrower terminal breaks lines by itself, and loses nothing."""


class Console(Rich):
    """Raises `BrokenPipeError` where rich would end with 1, which says that something was found."""

    @property
    def roomy(self) -> bool:
        """Whether what is drawn here stays on its lines, so that it may be drawn over."""
        return super().size.width >= LEAST

    @property  # type: ignore[misc]  # the base class's can be set, which nobody does
    def size(self) -> ConsoleDimensions:
        """How much room there is, or is taken."""
        found = super().size
        return ConsoleDimensions(max(found.width, LEAST), found.height)

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to whoever runs the command."""
        raise BrokenPipeError
