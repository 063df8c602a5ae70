"""Engines that are objects in this process, as trainers hold them: vLLM's, SGLang's and transformers'.

Nothing here imports the packages of the objects before a turn is sampled.
"""

from .base import InProcessEngine
from .sglang_engine import SglangEngine
from .transformers_model import TransformersModel
from .vllm_async import VllmAsync
from .vllm_llm import VllmLLM

__all__ = ["InProcessEngine", "SglangEngine", "TransformersModel", "VllmAsync", "VllmLLM"]
