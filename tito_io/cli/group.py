"""The `tito` command."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version

import click

from .main import deferred_interrupts

COMMANDS = {name: f"tito_io.{name}.command" for name in ("audit", "lint", "rollout", "samples", "serve")}
"""The commands, and the modules that hold them by the same name."""


class Commands(click.Group):
    """Loads a command's module where that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # the base class's
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # likewise
        """Return a command by its name."""
        if cmd_name not in COMMANDS:
            return None
        with deferred_interrupts():
            found: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return found


@click.group(cls=Commands)
@click.version_option(version("tito-kernel"), prog_name="tito")
def tito() -> None:
    """Token in, token out: exact ids for multi-turn agents."""
