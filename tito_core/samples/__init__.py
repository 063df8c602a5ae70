"""From calls to training rows: every sampled id trains exactly once."""

from .call import Call, Ending
from .experts import MissingRow, RoutedExperts, RowExperts
from .forest import Forest
from .leave_out import Why
from .node import EdgeKind, Node
from .options import Conversation, Cut, Owner, Retries, Rewards, RowPer, SampleOptions, TurnRule
from .row import Row, RowSpan, RowTurn
from .rows import Samples, Untrained, samples
from .weights import WeightVersion

__all__ = [
    "Call",
    "Conversation",
    "Cut",
    "EdgeKind",
    "Ending",
    "Forest",
    "MissingRow",
    "Node",
    "Owner",
    "Retries",
    "Rewards",
    "RoutedExperts",
    "Row",
    "RowExperts",
    "RowPer",
    "RowSpan",
    "RowTurn",
    "SampleOptions",
    "Samples",
    "TurnRule",
    "Untrained",
    "WeightVersion",
    "Why",
    "samples",
]
