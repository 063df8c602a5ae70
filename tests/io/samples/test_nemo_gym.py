"""Calls that NeMo Gym captured: a rollout has several lines, and a line names the one that it continues."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from tests.io.samples.sample_files import dumped, put, read
from tests.io.samples.test_verifiers import TRACES
from tests.io.samples.test_written_forms import gym_lines
from tito_core import InputError
from tito_io.samples.command import SOME_UNREAD, samples


def test_the_lines_of_a_rollout_are_one_conversation(tmp_path: Path) -> None:
    (stored,), problems = read(put(tmp_path, gym_lines()), form="nemo-gym")
    assert (problems, stored.name) == ([], "r")
    first, second = stored.forest.calls
    assert (first.name, first.step.prompt_ids.tolist(), first.ids.tolist()) == ("a", [1], [1, 2])
    assert (second.name, second.step.prompt_ids.tolist()) == ("b", [1, 2, 1])
    assert stored.forest["b"].parent == "a"


def test_a_file_without_calls_is_no_success_in_any_format(tmp_path: Path) -> None:
    """No line is wrong, and no conversation comes of them."""
    file = put(tmp_path, dumped({**TRACES, "traces": []}))
    for options in ([], ["--to", "tito"]):
        assert CliRunner().invoke(samples, [str(file), *options]).exit_code == SOME_UNREAD


def test_a_rollout_that_lacks_a_call_is_not_read(tmp_path: Path) -> None:
    file = put(tmp_path, gym_lines())
    file.with_name(file.name.removesuffix(".jsonl") + ".incomplete").touch()
    with pytest.raises(InputError, match="was not captured, so that it must not train"):
        read(file)


def test_a_finished_rollout_is_a_conversation(tmp_path: Path) -> None:
    ids = {"generation_token_ids": [3], "generation_log_probs": [-0.5]}
    output = [{**ids, "prompt_token_ids": [1]}, {"type": "function_call_output"}]
    output.append({**ids, "prompt_token_ids": [1, 3, 4]})
    named = {"responses_create_params": {}, "response": {"id": "r7", "output": output}, "reward": 0.5}
    unnamed = {**named, "response": {"output": output}}
    without = {**named, "response": {"id": "r8", "output": output[1:2]}}
    stored, problems = read(put(tmp_path, dumped(named, unnamed, without)), form="nemo-gym-rollouts")
    assert [one.name for one in stored] == ["r7", "line-2"]
    first, second = stored[0].forest.calls
    assert (first.ids.tolist(), second.ids.tolist(), second.reward) == ([1, 3], [1, 3, 4, 3], 0.5)
    assert [str(one) for one in problems] == [
        "line 3: no output item of the rollout has generation_token_ids: let the model server send ids"
    ]


@pytest.mark.parametrize("prompt", [["x"], [-1]])
def test_a_prompt_of_other_things_than_ids_is_named(tmp_path: Path, prompt: list[object]) -> None:
    first, _ = (orjson.loads(line) for line in gym_lines().splitlines())
    _, problems = read(
        put(tmp_path, dumped(first, {**first, "model_call_id": "b", "prompt_token_ids": prompt}))
    )
    assert "prompt_token_ids" in str(problems[0])
