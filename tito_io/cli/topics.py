"""Options of a command by topic, those that most users need first: in `--help` one heading for each topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

Topics = Mapping[str, str]
"""Names of options by heading, as they are written without `--`: `{"Logs": "verbose log-level"}`."""


class TopicCommand(click.Command):
    """A command whose help lists its options by topic.

    Args:
        topics: The topics, in the order of the help. Options in none of them stand under `Options`, first.
        more: What click takes.
    """

    def __init__(self, *, topics: Topics, **more: Any) -> None:
        super().__init__(**more)
        self.topics = topics

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a list for each topic."""
        titles = {name: title for title, names in self.topics.items() for name in names.split()}
        lists: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *self.topics)}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is not None:
                lists[titles.get(_name(one), "Options")].append(record)
        for title, records in lists.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _name(option: click.Parameter) -> str:
    """Return the longest spelling of an option, without its hyphens."""
    return max(option.opts, key=len).lstrip("-")
