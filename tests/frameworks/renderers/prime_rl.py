"""What prime-rl does with a renderer's configuration, as strictly as its own code.

Its package is not on the index. In PrimeIntellect-ai/prime-rl 559b447: the field and its check in
`configs/orchestrator.py` (lines 464 and 586), that of supervised fine-tuning in `configs/sft.py` (490), the
renderer in `orchestrator/utils.py` (87), and the client of `verifiers` in `utils/client.py` (112).
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from renderers import AutoRendererConfig, DefaultRendererConfig, RendererConfig, create_renderer
from renderers.base import MODEL_RENDERER_MAP
from verifiers.v1.configs.client import TrainClientConfig


class ModelConfig(BaseModel):
    """What both tables have."""

    model_config = ConfigDict(extra="forbid")

    model: str
    renderer: RendererConfig = AutoRendererConfig()


class OrchestratorConfig(ModelConfig):
    """The table `[orchestrator]`, as far as it is about renderers."""

    @model_validator(mode="after")
    def _resolves(self) -> OrchestratorConfig:
        if self.renderer.name == "auto" and self.model not in MODEL_RENDERER_MAP:
            raise ValueError("renderer.name='auto' has no renderer for this model")
        return self


class FinetuningConfig(ModelConfig):
    """A configuration of supervised fine-tuning, as far as it is about renderers."""

    @model_validator(mode="after")
    def _typed(self) -> FinetuningConfig:
        known = isinstance(self.renderer, AutoRendererConfig) and self.model in MODEL_RENDERER_MAP
        if not known and isinstance(self.renderer, (AutoRendererConfig, DefaultRendererConfig)):
            raise ValueError("a typed renderer is needed")
        return self


def set_up(config: OrchestratorConfig, tokenizer: Any) -> tuple[Any, TrainClientConfig]:
    """Return the renderer, and the configuration of the client that samples."""
    given = {"renderer": config.renderer, "renderer_model_name": config.model}
    client = TrainClientConfig(base_url="http://engine", api_key_var="NO_KEY", headers={}, **given)
    return create_renderer(tokenizer, config.renderer), client
