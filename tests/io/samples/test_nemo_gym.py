"""Calls that NeMo Gym captured: a rollout has several lines, and a line names the one that it continues."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.io.samples.sample_files import dumped, put, read
from tests.io.samples.test_verifiers import TRACES
from tests.io.samples.test_written_forms import gym_lines
from tito_core import InputError
from tito_io.samples.command import SOME_UNREAD, samples


def test_the_lines_of_a_rollout_are_one_conversation(tmp_path: Path) -> None:
    (stored,), problems = read(put(tmp_path, gym_lines()))
    assert (problems, stored.name) == ([], "r")
    first, second = stored.forest.calls
    assert (first.name, first.step.prompt_ids.tolist(), first.ids.tolist()) == ("a", [1], [1, 2])
    assert (second.name, second.step.prompt_ids.tolist()) == ("b", [1, 2, 1])
    assert stored.forest["b"].parent == "a"


def test_a_file_without_calls_is_no_success_in_any_format(tmp_path: Path) -> None:
    """No line is wrong, and yet whoever waits for conversations gets none."""
    file = put(tmp_path, dumped({**TRACES, "traces": []}))
    for options in ([], ["--to", "tito"]):
        assert CliRunner().invoke(samples, [str(file), *options]).exit_code == SOME_UNREAD


def test_a_rollout_that_lacks_a_call_is_not_read(tmp_path: Path) -> None:
    file = put(tmp_path, gym_lines())
    file.with_name(file.name.removesuffix(".jsonl") + ".incomplete").touch()
    with pytest.raises(InputError, match="was not captured, so that it must not train"):
        read(file)
