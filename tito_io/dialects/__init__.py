"""The API dialects of the gateway: pure translation between what clients speak and the project's words."""

from .anthropic import Anthropic
from .chat import Chat
from .protocol import Answer, Asked, Dialect, Reading, Said, Telling, UntranslatableError
from .responses import Responses

__all__ = [
    "Answer",
    "Anthropic",
    "Asked",
    "Chat",
    "Dialect",
    "Reading",
    "Responses",
    "Said",
    "Telling",
    "UntranslatableError",
]
