"""vLLM, over HTTP or straight into an ASGI application that speaks its dialect."""

from .engine import VLLM
from .notices import Notice
from .routes import CHAT, COMPLETIONS, GENERATE, TOKENS, Route

__all__ = ["CHAT", "COMPLETIONS", "GENERATE", "TOKENS", "VLLM", "Notice", "Route"]
