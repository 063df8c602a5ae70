"""Engines that are objects in this process: vLLM's, SGLang's, transformers' and mlx-lm's.

Nothing here imports the packages of the objects before a turn is sampled.
"""

from .base import InProcessEngine
from .mlx_model import MlxModel
from .sglang_engine import SglangEngine
from .transformers_model import TransformersModel
from .vllm_async import VllmAsync
from .vllm_llm import VllmLLM

__all__ = ["InProcessEngine", "MlxModel", "SglangEngine", "TransformersModel", "VllmAsync", "VllmLLM"]
