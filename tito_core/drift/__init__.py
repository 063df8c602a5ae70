"""Compare stored ids with a fresh render of their messages, and explain each difference."""

from .audit import Audited, audit
from .breaks import Break, BreakText, Cause, TurnPart
from .select import BreakSelection
from .tally import Tally
from .view import Renderer

__all__ = [
    "Audited",
    "Break",
    "BreakSelection",
    "BreakText",
    "Cause",
    "Renderer",
    "Tally",
    "TurnPart",
    "audit",
]
