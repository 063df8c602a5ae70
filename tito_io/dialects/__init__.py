"""The API dialects of the gateway: pure translation between what clients speak and the project's words."""

from .anthropic import Anthropic
from .chat import Chat
from .protocol import (
    Dialect,
    ParsedRequest,
    SampledMessage,
    StreamReading,
    Telling,
    TurnAnswer,
    UntranslatableError,
)
from .responses import Responses

__all__ = [
    "Anthropic",
    "Chat",
    "Dialect",
    "ParsedRequest",
    "Responses",
    "SampledMessage",
    "StreamReading",
    "Telling",
    "TurnAnswer",
    "UntranslatableError",
]
