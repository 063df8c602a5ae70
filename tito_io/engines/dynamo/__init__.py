"""NVIDIA Dynamo: its HTTP frontend, whichever engine works behind it."""

from .engine import Dynamo
from .keys import CHAT, COMPLETIONS, Route
from .replies import DynamoNotice

__all__ = ["CHAT", "COMPLETIONS", "Dynamo", "DynamoNotice", "Route"]
