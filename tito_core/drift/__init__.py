"""Compare stored ids with a fresh render of their messages, and explain each difference."""

from .audit import Audited, audit
from .breaks import Break, Cause, Part, Piece
from .select import Choice
from .tally import Tally
from .view import Renderer

__all__ = ["Audited", "Break", "Cause", "Choice", "Part", "Piece", "Renderer", "Tally", "audit"]
