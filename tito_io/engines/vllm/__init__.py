"""vLLM, over HTTP or in this process through an ASGI application with the same API."""

from .engine import VLLM
from .routes import CHAT, COMPLETIONS, GENERATE, TOKENS, Notice, Route

__all__ = ["CHAT", "COMPLETIONS", "GENERATE", "TOKENS", "VLLM", "Notice", "Route"]
