"""The API dialects of the gateway: pure translation between what clients speak and the project's words."""

from .anthropic import Anthropic
from .chat import Chat
from .protocol import (
    AnswerStream,
    Dialect,
    ParsedRequest,
    SampledMessage,
    StreamReading,
    TurnAnswer,
    UntranslatableError,
)
from .responses import Responses

__all__ = [
    "AnswerStream",
    "Anthropic",
    "Chat",
    "Dialect",
    "ParsedRequest",
    "Responses",
    "SampledMessage",
    "StreamReading",
    "TurnAnswer",
    "UntranslatableError",
]
