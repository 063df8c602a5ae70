"""The page about TRL, the tests of that integration and a training step, with Unsloth imported before TRL."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trl import GRPOTrainer

from tests.docs.page import run
from tests.frameworks.test_frameworks import ROOT, inside
from tests.frameworks.trl.families import own
from tests.frameworks.trl.training import Engine, multiply, train
from tests.frameworks.unsloth.rewriting import METHODS, rewritten
from tito_io.integrations.trl import ToolRollout


def test_the_page_about_trl_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "unsloth" in sys.modules
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TITO_CACHE", str(tmp_path / "cache"))
    assert run(ROOT / "docs" / "integrations" / "trl.md", tmp_path) > 0


def test_the_tests_of_trl_pass() -> None:
    done = inside(
        Path(sys.executable), "trl", "-p", "unsloth", "tests/frameworks/trl", "tests/frameworks/laws"
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert " passed" in done.stdout


def stepped(folder: Path, *more: str) -> Any:
    """Return what a training step in a process of its own prints."""
    command = [sys.executable, "-m", "tests.frameworks.unsloth.step", str(folder), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def test_a_training_step_is_the_one_without_unsloth(tmp_path: Path) -> None:
    with_unsloth, without = stepped(tmp_path / "with", "unsloth"), stepped(tmp_path / "without")
    for name in ("weights", "losses"):
        assert with_unsloth.pop(name) == pytest.approx(without.pop(name))
    assert with_unsloth == without
    assert len(without["prompts"][0]) == 3
    assert without["changed"] > 5


def test_the_rewritten_trainer_samples_by_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in METHODS:
        monkeypatch.setattr(GRPOTrainer, name, rewritten(name))
    model = own(tmp_path)
    replies = [[model.calling(3, 4), model.answering()]] * 2
    engine = Engine(replies, model.tokenizer.pad_token_id)
    rollout = ToolRollout([multiply], parse=model.parse)
    seen = train(model, engine, tmp_path, rollout_func=rollout)
    assert seen.sampled() == [[*calling, *answer] for calling, answer in replies]
    assert (rollout.built, rollout.refused) == (2, {})
