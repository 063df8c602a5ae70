"""The `tito` command: finds its subcommands, and takes options from environment variables and a file."""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tito_core import __version__

from .config import ConfigFile, long_names, suggestion
from .options import HELP_NAMES
from .process import deferred_interrupts

_OF_ROOMS = ("audit", "conform", "lint", "rollout", "samples", "serve")
COMMANDS = {
    **{name: f"tito_io.{name}.command" for name in _OF_ROOMS},
    "vectors": "tito_io.conform.vectors_command",
}
"""The commands, and the modules that hold them under the same name."""
CONFIG = "tito.config"
"""The key of the `ConfigFile` in click's `Context.meta`."""


class Commands(click.Group):
    """Imports a command's module when that command is asked for, and gives its options their variables."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # the base class's
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # likewise
        """Return the command `cmd_name`, or None."""
        if cmd_name not in COMMANDS:
            return None
        with deferred_interrupts():
            command: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        # Click breaks a given summary over lines, and cuts one that it takes from the help itself.
        command.short_help = (command.help or "").partition("\n")[0]
        for name, option in long_names(command).items():
            # Click's own prefix would name --json by its Python variable: TITO_ROLLOUT_AS_JSON.
            option.envvar = option.envvar or f"TITO_{cmd_name}_{name}".upper().replace("-", "_")
            option.show_envvar = True
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name, its defaults taken from the file of --config."""
        if args[0] not in COMMANDS and args[0][:1].isalnum() and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}{suggestion(args[0], COMMANDS)}")
        name, command, rest = super().resolve_command(ctx, args)
        config: ConfigFile | None = ctx.meta.get(CONFIG)
        if config is not None and name is not None and command is not None:
            ctx.default_map = {name: config.defaults(name, command)}
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an invalid value is reported with the file or variable that it came from."""
        try:
            return super().invoke(ctx)
        except click.MissingParameter:
            raise
        except click.NoSuchOption as error:
            if not any(error.option_name in one.opts for one in self.params):
                raise
            text = f"{error.option_name} is an option of tito: write it before the command."
            raise click.NoSuchOption(error.option_name, text, ctx=error.ctx) from None
        except click.BadParameter as error:
            if error.ctx is None or not isinstance(error.param, click.Option):
                raise
            # Click's own hint names the option's variable, wherever the value came from.
            origin, hint = _origin(error.ctx, error.param), f"'{max(error.param.opts, key=len)}'"
            near = _nearest(error)
            text = origin + (error.message.rstrip(".") + near if near else error.message)
            raise click.BadParameter(text, error.ctx, error.param, hint) from error


def _origin(ctx: click.Context, option: click.Option) -> str:
    """Return the variable or the file that an option's value came from, nothing for the command line."""
    source = ctx.get_parameter_source(str(option.name))
    if source is ParameterSource.ENVIRONMENT:
        return f"{option.envvar}: "
    return f"{ctx.meta[CONFIG].path}: " if source is ParameterSource.DEFAULT_MAP else ""


def _nearest(error: click.BadParameter) -> str:
    """Return the choice that was perhaps meant, as the end of an error; nothing for other options."""
    given = re.match("'(.*)' is not one of", error.message)
    kind = None if error.param is None else error.param.type
    return suggestion(given[1], list(kind.choices)) if given and isinstance(kind, click.Choice) else ""


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None or ctx.resilient_parsing:
        return
    try:
        ctx.meta[CONFIG] = ConfigFile.read(path, COMMANDS, partial(_option_names, ctx))
    except click.UsageError as error:
        given = ctx.get_parameter_source("config") is ParameterSource.ENVIRONMENT
        raise click.UsageError("TITO_CONFIG: " * given + error.message, ctx) from error


def _option_names(ctx: click.Context, name: str) -> list[str]:
    command = tito.get_command(ctx, name)
    return [] if command is None else list(long_names(command))


@click.group(cls=Commands, context_settings=HELP_NAMES)
@click.version_option(__version__, prog_name="tito")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="TITO_CONFIG",
    show_envvar=True,
    expose_value=False,
    callback=_read_config,
    help="TOML file with options; write it before the command. It has a section for each command, such as "
    "[rollout], and in it a key for each option, such as max-tokens = 64. The command line overrides "
    "environment variables, and these override the file.",
)
def tito() -> None:
    """Token in, token out: exact ids for multi-turn agents."""
