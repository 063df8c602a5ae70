"""Where the integration goes into TRL."""

from __future__ import annotations

from inspect import iscoroutinefunction, signature
from typing import Any

from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import add_response_schema, parse_response
from trl.data_utils import prepare_multimodal_messages


def parameters(function: Any) -> list[str]:
    return list(signature(function).parameters)


def test_the_trainer_takes_a_rollout_function() -> None:
    assert "rollout_func" in parameters(GRPOTrainer)


def test_the_trainer_has_the_limits() -> None:
    options = {"max_completion_length", "max_tool_calling_iterations", "vllm_max_model_length"}
    assert options <= set(parameters(GRPOConfig))


def test_there_is_a_parser() -> None:
    assert parameters(parse_response) == ["tokenizer", "ids", "prefix", "tools"]
    assert parameters(add_response_schema) == ["processing_class"]
    assert not iscoroutinefunction(parse_response)


def test_the_forward_pass_gets_images_by_name() -> None:
    names = parameters(GRPOTrainer._get_per_token_logps_and_entropies)
    assert {"pixel_values", "token_type_ids", "mm_token_type_ids"} <= set(names)
    assert parameters(prepare_multimodal_messages) == ["messages", "images"]
