"""Toy model families: each is one quirk of a real template, and knows the truth about itself."""

from .shifty import SHIFTY
from .steady import STEADY
from .toy import Message, Toy

TOYS: tuple[Toy, ...] = STEADY + SHIFTY

__all__ = ["SHIFTY", "STEADY", "TOYS", "Message", "Toy"]
