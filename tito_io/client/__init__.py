"""Clients that sample multi-turn conversations: prompts go as ids where that is proven, else as messages."""

from tito_io.extras import missing

try:
    from .bridge import AsyncBridge
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("tito"):
        raise
    raise ModuleNotFoundError(missing(error.name), name=error.name) from error
from .conversation import Conversation
from .driver import AsyncTokenizeFn, InThread, answer, rendered_by
from .token_client import CompletedTurn, Counts, TokenClient
from .turn import ClientTurn, Route
from .turn_sampler import TurnSampler

__all__ = [
    "AsyncBridge",
    "AsyncTokenizeFn",
    "ClientTurn",
    "CompletedTurn",
    "Conversation",
    "Counts",
    "InThread",
    "Route",
    "TokenClient",
    "TurnSampler",
    "answer",
    "rendered_by",
]
