"""The calls of all rollouts in a file: its rows are what was trained."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tito_core import InputError
from tito_io.integrations.trl import ToolRollout
from tito_io.samples.command import samples

from .families import own
from .training import Engine, Model, Trained, made, multiply, train


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return own(tmp_path)


def trained(model: Model, path: Path, replies: list[list[list[int]]], **given: Any) -> Trained:
    engine = Engine(replies, model.tokenizer.pad_token_id)
    rollout = ToolRollout([multiply], parse=model.parse, calls=path)
    return train(model, engine, path.parent, rollout_func=rollout, **given)


def rows(path: Path) -> list[dict[str, Any]]:
    """Return what `tito samples` makes of a file of calls."""
    done = CliRunner().invoke(samples, [str(path), "-o", str(path.with_suffix(".rows.jsonl"))])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in path.with_suffix(".rows.jsonl").read_text().splitlines()]


def test_the_rows_of_the_file_are_those_that_were_trained(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    called = [[model.calling(3, 4), model.answering("12")], [model.calling(5, 5), model.answering("25")]]
    again = [[model.calling(6, 7), model.answering("42")], [model.answering("9")]]
    seen = trained(model, path, called + again, steps=2)
    found = rows(path)
    sampled = [[one for one, mask in zip(row["ids"], row["loss_mask"], strict=True) if mask] for row in found]
    assert sampled == seen.sampled() == [list(chain(*one)) for one in called + again]
    assert [row["conversation"] for row in found] == [f"rollout-{number}" for number in range(1, 5)]
    assert [turn["finish_reason"] for turn in found[0]["turns"]] == ["tool_calls", "stop"]


def test_the_file_says_who_wrote_each_id(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    trained(model, path, [[model.calling(3, 4), model.answering()]] * 2)
    origins = [span["origin"] for span in rows(path)[0]["spans"]]
    written = ["inserted_close", "environment", "generation_prompt"]
    assert origins == ["prompt", "sampled", *written, "sampled"]


def test_a_turn_without_a_stop_is_stored_as_cut_short(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    trained(model, path, [[model.answering("4848")]] * 2, max_completion_length=3)
    assert [turn["finish_reason"] for turn in rows(path)[0]["turns"]] == ["length"]


def test_an_older_file_is_replaced(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text("old\n")
    trained(model, path, [[model.answering()]] * 2)
    assert len(rows(path)) == 2


def test_several_processes_would_write_one_file(model: Model, tmp_path: Path) -> None:
    rollout = ToolRollout([multiply], parse=model.parse, calls=tmp_path / "calls.jsonl")
    trainer = made(model, tmp_path, rollout_func=rollout).trainer
    trainer.accelerator = SimpleNamespace(num_processes=2)
    with pytest.raises(InputError, match="calls: several processes would write the same file; leave it out"):
        rollout([[{"role": "user", "content": "Hello."}]], trainer)
