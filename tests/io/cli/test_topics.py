"""Help lists options by topic."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from tito_io.cli.config import long_names
from tito_io.cli.group import COMMANDS, tito
from tito_io.cli.topics import TopicCommand

MOST_AT_ONCE = 16
"""Options of one topic: more are not read."""


def command(name: str) -> click.Command:
    found = tito.get_command(click.Context(tito), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_topic_has_options_of_the_command_and_each_option_one_topic(name: str) -> None:
    one = command(name)
    topics = one.topics if isinstance(one, TopicCommand) else {}
    listed = [option for names in topics.values() for option in names.split()]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(long_names(one))
    first = len(long_names(one)) - len(listed)
    assert max([first, *(len(names.split()) for names in topics.values())]) <= MOST_AT_ONCE


def test_help_has_a_heading_for_each_topic_and_every_option_once() -> None:
    shown = CliRunner().invoke(tito, ["serve", "--help"], env={"COLUMNS": "80"}).output
    one = command("serve")
    assert isinstance(one, TopicCommand)
    places = [shown.index(f"\n{title}:\n") for title in ("Options", *one.topics)]
    assert places == sorted(places)
    for name in long_names(one):
        assert (
            sum(f"--{name}" in line.split() or f"--{name}," in line.split() for line in shown.splitlines())
            >= 1
        )


def test_an_option_of_tito_is_named_as_such_behind_a_command() -> None:
    found = CliRunner().invoke(tito, ["rollout", "--config", "x"])
    assert found.exit_code == 2
    assert "--config is an option of tito: write it before the command." in found.output
