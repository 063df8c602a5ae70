"""Compare stored ids with a fresh render of their messages, and explain each difference."""

from .audit import Audited, audit
from .breaks import Break, BreakSelection, BreakText, Cause, TurnPart
from .renderer import Renderer
from .tally import Tally

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
