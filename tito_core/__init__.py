"""Token in, token out: the pure kernel.

Every id that a model sampled comes back unchanged, or nothing comes back.
"""

from .ask import Ask, Asking, TokenizeFn, answer
from .audit import Audited, audit
from .break_choice import Choice
from .break_view import Renderer
from .breaks import Break, Cause, Part, Piece
from .call import Call, Ending
from .certify import certifying
from .check import checking
from .differ import differences
from .edge import from_data, to_data
from .environment import clean
from .errors import InputError, TemplateRefused, TitoError, TokenizeError
from .experts import MissingRow, RoutedExperts, RowExperts
from .forest import Forest
from .ids import Ids
from .kept import Why
from .key import render_key
from .kind import Kind
from .ledger import Ledger, Origin, Span
from .message import Message, Messages, is_multimodal
from .node import EdgeKind, Node
from .normal import Canonical, Forgiveness, normalize, same
from .policy import OddStop, Policy, Truncated
from .probe import probe, probing
from .profile import Case, Facts, Mode, Profile, Recipe
from .refusal import Reason, Refusal
from .row import Row, RowSpan, RowTurn
from .sample_options import Conversation, Cut, Owner, Retries, Rewards, RowPer, SampleOptions, TurnRule
from .samples import Samples, Untrained, samples
from .step import Step
from .stitch import Stitched, case_of, stitch, stitching
from .suffix import suffix_asking, suffix_ids
from .tally import Tally
from .trajectory import Trajectory
from .weights import WeightVersion

__version__ = "0.1.0"

__all__ = [
    "Ask",
    "Asking",
    "Audited",
    "Break",
    "Call",
    "Canonical",
    "Case",
    "Cause",
    "Choice",
    "Conversation",
    "Cut",
    "EdgeKind",
    "Ending",
    "Facts",
    "Forest",
    "Forgiveness",
    "Ids",
    "InputError",
    "Kind",
    "Ledger",
    "Message",
    "Messages",
    "MissingRow",
    "Mode",
    "Node",
    "OddStop",
    "Origin",
    "Owner",
    "Part",
    "Piece",
    "Policy",
    "Profile",
    "Reason",
    "Recipe",
    "Refusal",
    "Renderer",
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
    "Span",
    "Step",
    "Stitched",
    "Tally",
    "TemplateRefused",
    "TitoError",
    "TokenizeError",
    "TokenizeFn",
    "Trajectory",
    "Truncated",
    "TurnRule",
    "Untrained",
    "WeightVersion",
    "Why",
    "answer",
    "audit",
    "case_of",
    "certifying",
    "checking",
    "clean",
    "differences",
    "from_data",
    "is_multimodal",
    "normalize",
    "probe",
    "probing",
    "render_key",
    "same",
    "samples",
    "stitch",
    "stitching",
    "suffix_asking",
    "suffix_ids",
    "to_data",
]
