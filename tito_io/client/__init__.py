"""Clients that sample multi-turn conversations: prompts go as ids where that is proven, else as messages."""

from .conversation import ClientTurn, Conversation, Route
from .driver import AsyncTokenizeFn, InThread, answer
from .token_client import Counts, SampledTurn, TokenClient

__all__ = [
    "AsyncTokenizeFn",
    "ClientTurn",
    "Conversation",
    "Counts",
    "InThread",
    "Route",
    "SampledTurn",
    "TokenClient",
    "answer",
]
