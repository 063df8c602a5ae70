"""TensorRT-LLM's server, `trtllm-serve`."""

from .engine import TensorRTLLM

__all__ = ["TensorRTLLM"]
