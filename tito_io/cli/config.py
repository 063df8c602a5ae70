"""Read options from a TOML file: a section for each command, a key for each option."""

from __future__ import annotations

import tomllib
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import attrs
import click


@attrs.frozen
class ConfigFile:
    """A file of options.

    Attributes:
        path: The file.
        sections: Values by command and by the option's name without its dashes.
        commands: The names of all commands.
        options_of: Returns the names of a command's options; asked only for an error.
    """

    path: Path
    sections: Mapping[str, Mapping[str, Any]]
    commands: Collection[str]
    options_of: Callable[[str], Collection[str]]

    @classmethod
    def read(
        cls, path: Path, commands: Collection[str], options_of: Callable[[str], Collection[str]]
    ) -> ConfigFile:
        """Read the file at `path`; raises `click.UsageError` for a section that is not one of `commands`."""
        try:
            sections = tomllib.loads(path.read_bytes().removeprefix(BOM_UTF8).decode())
        except OSError as error:
            raise click.UsageError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise click.UsageError(f"{path}: not a UTF-8 text, at byte {error.start}") from error
        except RecursionError as error:
            raise click.UsageError(f"{path}: nested too deep: an option is a value or a list") from error
        except ValueError as error:  # also of a number with more digits than Python reads
            raise click.UsageError(f"{path}: not valid TOML: {error}") from error
        config = cls(path, sections, commands, options_of)
        for name, section in sections.items():
            if name in commands and not isinstance(section, dict):
                raise click.UsageError(f"{path}: {name} must be a section: write [{name}] on its own line")
            if not isinstance(section, dict):
                raise click.UsageError(f"{path}: {name} is in no section{config._belongs(name)}")
            if name not in commands:
                raise click.UsageError(f"{path}: [{name}] is not a command{suggestion(name, commands)}")
        return config

    def _belongs(self, key: str) -> str:
        """Return where an option belongs, as the end of an error."""
        option = key.replace("_", "-")
        owners = [name for name in sorted(self.commands) if option in self.options_of(name)]
        if not owners:
            return f", and no command has such an option; the sections are {', '.join(sorted(self.commands))}"
        return f": {option} is an option of {', '.join(owners)}; write it below [{owners[0]}]"

    def defaults(self, name: str, command: click.Command) -> dict[str, Any]:
        """Return a command's values by parameter; raises `click.UsageError` for an unknown key."""
        options = long_names(command)
        given = {key.replace("_", "-"): (key, value) for key, value in self.sections.get(name, {}).items()}
        for option, (key, _) in given.items():
            if option not in options:
                near = suggestion(option, options)
                text = f"[{name}] {key} is not an option of {name}{near or self._belongs(key)}"
                raise click.UsageError(f"{self.path}: {text}")
        return {
            str(options[option].name): self._value(options[option], f"[{name}] {key}", value)
            for option, (key, value) in given.items()
        }

    def _value(self, option: click.Option, where: str, value: Any) -> Any:
        """Return a value as the command line would give it, so that the option's type checks it.

        Click would otherwise make 2 of `turns = 2.5`, and 1 of `turns = true`.
        """
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, dict | list) for one in values) or (values is value and not option.multiple):
            expected = "a value or a list of values" if option.multiple else "one value"
            raise click.UsageError(f"{self.path}: {where} must be {expected}")
        if option.is_flag and not isinstance(value, bool):
            raise click.UsageError(f"{self.path}: {where} must be true or false")
        if option.is_flag:
            return value
        texts = [str(one).lower() if isinstance(one, bool) else str(one) for one in values]
        return texts if option.multiple else texts[0]


def long_names(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by their longest name, without the dashes in front.

    >>> command = click.Command("c", params=[click.Option(["-o", "--output"]), click.Option(["--a/--no-a"])])
    >>> list(long_names(command))
    ['output', 'a']
    """
    options = (option for option in command.params if isinstance(option, click.Option))
    return {max(option.opts, key=len).lstrip("-"): option for option in options}


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the nearest known name as the end of an error, or nothing.

    >>> suggestion("rolout", ["lint", "rollout"]), suggestion("x", ["lint"])
    ("; did you mean 'rollout'?", '')
    """
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
