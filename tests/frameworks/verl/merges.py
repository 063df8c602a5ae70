"""Merges by the integration, and by verl's builder of a model type."""

from __future__ import annotations

from functools import partial
from typing import Any

from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from tests.frameworks.laws.merges import Merge, Merges
from tests.frameworks.turns import SampledPrompt
from tito_io.integrations.shared_prompts import SharedPrompts
from tito_io.integrations.verl import TitoContinuousTokenBuilder

MODEL_TYPES = {
    "deepseek-v3": "deepseek_v3",
    "gemma3": "gemma3",
    "glm4.5": "glm4_moe",
    "gpt-oss": "gpt_oss",
    "kimi-k2": "kimi_k2",
    "llama3": "llama",
    "mistral-tekken": "mistral3",
    "nemotron3": "nemotron_h",
    "phi3": "phi3",
    "phi4": "phi3",
    "qwen2.5": "qwen2",
    "qwen3": "qwen3",
    "qwen3.5": "qwen3_5",
    "smollm3": "smollm3",
}


class MERGES(Merges):
    """verl."""

    raises = (Exception,)  # templates raise what they like through verl's builders

    def builder(self) -> Any:
        """Return tito's builder."""
        return TitoContinuousTokenBuilder(self.tokenizer, shared=SharedPrompts(stop_ids=self.stops))

    def own(self) -> Any:
        """Return verl's builder."""
        model_type = MODEL_TYPES.get(self.name, self.name)
        return create_continuous_token_builder(self.tokenizer, hf_model_type=model_type)

    def ours(self) -> Merge:
        return partial(_merged, self.builder())

    def theirs(self) -> Merge:
        return partial(_merged, self.own())


def _merged(builder: Any, prompt: SampledPrompt) -> list[int]:
    found: list[int] = merge(builder, prompt).token_ids
    return found


def merge(builder: Any, prompt: SampledPrompt) -> Any:
    """Return verl's record of a merge."""
    before = [*prompt.history, prompt.turn]
    return builder.merge_context_tokens(before, [*before, *prompt.new], prompt.ids, tools=prompt.tools)
