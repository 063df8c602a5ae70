"""Take turns with any engine: by ids wherever that is proven, by messages elsewhere."""

from .conversation import Conversation
from .driver import answer
from .token_client import TokenClient

__all__ = ["Conversation", "TokenClient", "answer"]
