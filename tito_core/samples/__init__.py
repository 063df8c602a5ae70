"""Turn stored calls into training rows: every sampled id trains exactly once."""

from .auxiliary import Agent, auxiliary_calls
from .call import Ending, StoredCall, WeightVersion
from .experts import MissingRow, RoutedExperts, RowExperts
from .forest import Forest
from .leave_out import LeaveOutReason
from .node import EdgeKind, Node
from .options import (
    AuxiliaryRule,
    ConversationScope,
    Cut,
    Owner,
    Retries,
    Rewards,
    RowPer,
    SampleOptions,
    TurnRule,
)
from .row import Row, RowSpan, RowTurn
from .rows import RowSet, Untrained, make_rows
from .whole_row import WholeRow, row_of

__all__ = [
    "Agent",
    "AuxiliaryRule",
    "ConversationScope",
    "Cut",
    "EdgeKind",
    "Ending",
    "Forest",
    "LeaveOutReason",
    "MissingRow",
    "Node",
    "Owner",
    "Retries",
    "Rewards",
    "RoutedExperts",
    "Row",
    "RowExperts",
    "RowPer",
    "RowSet",
    "RowSpan",
    "RowTurn",
    "SampleOptions",
    "StoredCall",
    "TurnRule",
    "Untrained",
    "WeightVersion",
    "WholeRow",
    "auxiliary_calls",
    "make_rows",
    "row_of",
]
