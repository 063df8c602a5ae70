"""NVIDIA Dynamo: its HTTP frontend, whichever engine works behind it."""

from .engine import Dynamo
from .notices import DynamoNotice
from .routes import CHAT, COMPLETIONS, Route

__all__ = ["CHAT", "COMPLETIONS", "Dynamo", "DynamoNotice", "Route"]
