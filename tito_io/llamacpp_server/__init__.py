"""Start llama.cpp's own HTTP server on a GGUF file, and stop it: the package xllamacpp holds it."""

from .process import LlamaCppServer, ServerStartError, running
from .settings import ServerSettings

__all__ = ["LlamaCppServer", "ServerSettings", "ServerStartError", "running"]
