"""Where the integration goes into TRL."""

from __future__ import annotations

from inspect import iscoroutinefunction, signature
from typing import Any

import pytest
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import add_response_schema, parse_response
from trl.data_utils import prepare_multimodal_messages

from tito_io.integrations.framework import FrameworkError
from tito_io.integrations.trl import ToolRollout


def parameters(function: Any) -> list[str]:
    return list(signature(function).parameters)


def test_the_trainer_takes_a_rollout_function_and_samples_single_turns() -> None:
    assert "rollout_func" in parameters(GRPOTrainer)
    single = ["self", "prompt_ids", "images", "multimodal_fields", "num_generations"]
    assert parameters(GRPOTrainer._generate_single_turn)[:5] == single


def test_the_trainer_has_the_limits() -> None:
    options = {"max_completion_length", "max_tool_calling_iterations", "vllm_max_model_length"}
    assert options <= set(parameters(GRPOConfig))


def test_there_is_a_parser() -> None:
    assert parameters(parse_response) == ["tokenizer", "ids", "prefix", "tools"]
    assert parameters(add_response_schema) == ["processing_class"]
    assert not iscoroutinefunction(parse_response)


SEAMS = ("_generate_single_turn", "_get_per_token_logps_and_entropies")


@pytest.mark.parametrize("name", SEAMS)
def test_a_seam_that_moved_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def moved(self: Any, prompts: Any) -> None: ...

    monkeypatch.setattr(GRPOTrainer, name, moved)
    with pytest.raises(FrameworkError, match=rf"trl 1\.16\.0 has no GRPOTrainer\.{name}"):
        ToolRollout()


def test_the_forward_pass_gets_images_by_name() -> None:
    names = parameters(GRPOTrainer._get_per_token_logps_and_entropies)
    assert {"pixel_values", "token_type_ids", "mm_token_type_ids"} <= set(names)
    assert parameters(prepare_multimodal_messages) == ["messages", "images"]
