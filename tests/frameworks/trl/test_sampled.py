"""What a trainer brings: missing log-probabilities and a template of its own."""

from __future__ import annotations

from pathlib import Path

from tito_io.integrations.trl import ToolRollout

from .families import own
from .training import QUESTION, made


def test_a_logprob_that_is_missing_stays_missing(tmp_path: Path) -> None:
    """VLLM gives None for a value that is no number, and TRL takes it."""
    model = own(tmp_path)
    trainer = made(model, tmp_path).trainer
    trainer._generate_single_turn = lambda *_: ([model.answering()], [[None] * len(model.answering())])
    found = ToolRollout()([[QUESTION]], trainer)
    assert found["logprobs"] == [[None] * len(model.answering())]


def test_another_trainer_brings_its_own_template(tmp_path: Path) -> None:
    rollout = ToolRollout()
    for name in ("first", "second"):
        model = own(tmp_path / name)
        model.tokenizer.chat_template = name + model.tokenizer.chat_template
        trainer = made(model, tmp_path).trainer
        trainer._generate_single_turn = lambda *_: ([[1, 2]], None)
        prompt = rollout([[QUESTION]], trainer)["prompt_ids"][0]
        assert model.tokenizer.decode(prompt).startswith(name)
