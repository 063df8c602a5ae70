"""Real training steps on rollouts whose prompts are built from ids."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from tito_io.integrations.trl import ToolRollout

from .families import glm, mistral, own, qwen3
from .training import QUESTION, Engine, Model, Trained, made, multiply, no_zero, train

FAMILIES = os.environ.get("TITO_FAMILIES", "")
REAL: dict[str, Callable[[str], Model]] = {"qwen3": qwen3, "glm": glm, "mistral": mistral}


@pytest.fixture(scope="module", params=["own", *REAL])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    if request.param == "own":
        return own(tmp_path_factory.mktemp("own"))
    if not FAMILIES:
        pytest.skip("needs TITO_FAMILIES")
    return REAL[request.param](FAMILIES)


def test_a_training_step_uses_exactly_the_sampled_ids(model: Model, tmp_path: Path) -> None:
    replies = [
        [model.calling(3, 4), model.calling(12, 4), model.answering()],
        [model.calling(5, 5), model.answering("25")],
    ]
    engine = Engine(replies, model.tokenizer.pad_token_id)
    rollout = ToolRollout([multiply], parse=model.parse)
    seen = train(model, engine, tmp_path, rollout_func=rollout)
    assert [math.isfinite(loss) for loss in seen.losses] == [True]
    assert seen.changed > 5
    assert seen.sampled() == [list(chain(*one)) for one in replies]
    assert [len(prompts) for prompts in engine.prompts] == [3, 2]  # each began with the ids before it
    assert (rollout.built, rollout.refused) == (3, {})


def test_tool_results_stand_in_the_prompt_as_the_template_writes_them(model: Model, tmp_path: Path) -> None:
    engine = Engine([[model.calling(3, 4), model.answering()]] * 2, model.tokenizer.pad_token_id)
    seen = train(model, engine, tmp_path, rollout_func=ToolRollout([multiply], parse=model.parse))
    first, second = engine.prompts[0]
    added = model.tokenizer.decode(second[len(first) + len(model.calling(3, 4)) :])
    (turn, result, _) = seen.rewarded[0]["rollout_messages"][0]
    whole = model.tokenizer.apply_chat_template(
        [QUESTION, turn, result], tools=[multiply], add_generation_prompt=True, tokenize=False
    )
    assert "12" in added
    assert whole.endswith(added)


@pytest.mark.skipif(not FAMILIES, reason="needs TITO_FAMILIES")
def test_the_prompts_are_those_of_trls_own_loop(tmp_path: Path) -> None:
    """TRL replaces this family's template by one that keeps all reasoning, for its own loop to work."""
    model = qwen3(FAMILIES)
    replies = [[model.calling(3, 4), model.calling(12, 4), model.answering()]] * 2
    ours, theirs = (Engine(replies, model.tokenizer.pad_token_id) for _ in range(2))
    train(model, ours, tmp_path, rollout_func=ToolRollout([multiply]))
    seen = train(model, theirs, tmp_path, tools=[multiply])
    assert seen.trainer.chat_template is not None
    assert ours.prompts == theirs.prompts


def logged(seen: Trained) -> list[tuple[float, float]]:
    """Return what is logged of tools in each step."""
    names = ("tools/call_frequency", "tools/failure_frequency")
    found = [[entry[name] for name in names] for entry in seen.trainer.state.log_history if "loss" in entry]
    return [(calls, failures) for calls, failures in found]


def test_the_frequencies_of_calls_and_failures_are_logged(model: Model, tmp_path: Path) -> None:
    """Three calls in two rollouts, one of which raises; the second step has none."""
    replies = [
        [model.calling(3, 4), model.calling(3, 0), model.answering()],
        [model.calling(5, 5), model.answering("25")],
        *[[model.answering()]] * 2,
    ]
    engine = Engine(replies, model.tokenizer.pad_token_id)
    rollout = ToolRollout([no_zero()], parse=model.parse)
    seen = train(model, engine, tmp_path, steps=2, rollout_func=rollout)
    assert logged(seen) == [(1.5, pytest.approx(1 / 3)), (0.0, 0.0)]


def test_without_tools_nothing_is_logged_of_them(model: Model, tmp_path: Path) -> None:
    engine = Engine([[model.answering()]] * 2, model.tokenizer.pad_token_id)
    seen = train(model, engine, tmp_path, rollout_func=ToolRollout([], parse=model.parse))
    assert not any(name.startswith("tools/") for entry in seen.trainer.state.log_history for name in entry)


@pytest.mark.skipif(not FAMILIES, reason="needs TITO_FAMILIES")
def test_the_frequencies_are_those_of_trls_own_loop(tmp_path: Path) -> None:
    model, tool = qwen3(FAMILIES), no_zero()
    replies = [[model.calling(3, 4), model.calling(3, 0), model.answering()], [model.answering()]]
    ours, theirs = (Engine(replies, model.tokenizer.pad_token_id) for _ in range(2))
    own = train(model, ours, tmp_path, rollout_func=ToolRollout([tool]))
    assert logged(own) == logged(train(model, theirs, tmp_path, tools=[tool])) == [(1.0, 0.5)]


@pytest.mark.skipif(not FAMILIES, reason="needs TITO_FAMILIES")
def test_trls_own_loop_does_not_take_every_template(tmp_path: Path) -> None:
    model = mistral(FAMILIES)
    with pytest.raises(ValueError, match="template"):
        train(model, Engine([], 0), tmp_path, tools=[multiply])


def test_the_trainers_own_model_samples(tmp_path: Path) -> None:
    """Nothing is scripted here: a random model samples, in training and in evaluation."""
    seen = made(own(tmp_path), tmp_path, max_completion_length=12, rollout_func=ToolRollout())
    trainer = seen.trainer
    trainer.train()
    trainer.evaluate(trainer.train_dataset)
    assert len(seen.rewarded) >= 2
    for columns in seen.rewarded:
        for ids, end, messages in zip(
            columns["completion_ids"], columns["rollout_end"], columns["rollout_messages"], strict=True
        ):
            assert 0 < len(ids) <= 12
            assert end == ("answer" if ids[-1] in trainer.eos_token_ids else "length")
            text = trainer.processing_class.decode(ids, skip_special_tokens=True)
            assert messages == [{"role": "assistant", "content": text}]
