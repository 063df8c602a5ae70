"""llama.cpp's own HTTP server, `llama-server`."""

from .engine import LlamaCpp
from .replies import LlamaCppNotice

__all__ = ["LlamaCpp", "LlamaCppNotice"]
