"""Token in, token out: the pure kernel.

Every id that a model sampled comes back unchanged, or nothing comes back.

What stitching needs is imported at once; what looks at a finished rollout, or at a template as a whole, when
it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .ask import Ask, Asking, TokenizeFn, answer
from .environment import clean
from .errors import InputError, TemplateRefused, TitoError, TokenizeError
from .forgiveness import Forgiveness
from .ids import Ids
from .key import render_key
from .kind import Kind
from .ledger import Ledger, Origin, Span
from .located import Located, locate
from .message import Message, Messages, is_multimodal
from .normal import Canonical, normalize
from .policy import OddStop, Policy, Truncated
from .profile import Case, Facts, Mode, Profile, Recipe
from .refusal import Reason, Refusal
from .same import same
from .step import Step
from .stitch import Stitched, continuing, stitch, stitching
from .suffix import suffix_asking, suffix_ids
from .trajectory import Trajectory

if TYPE_CHECKING:
    from .audited import Audited, audit
    from .break_choice import Choice
    from .break_view import Renderer
    from .breaks import Break, Cause, Part, Piece
    from .call import Call, Ending
    from .certify import certifying
    from .check import checking
    from .differ import differences
    from .edge import from_data, to_data
    from .experts import MissingRow, RoutedExperts, RowExperts
    from .forest import Forest
    from .kept import Why
    from .node import EdgeKind, Node
    from .row import Row, RowSpan, RowTurn
    from .sample_options import Conversation, Cut, Owner, Retries, Rewards, RowPer, SampleOptions, TurnRule
    from .sample_rows import Samples, Untrained, samples
    from .survey import probe, probing
    from .tally import Tally
    from .weights import WeightVersion

__version__ = "0.1.0"

_LATER = {
    "audited": ("Audited", "audit"),
    "break_choice": ("Choice",),
    "break_view": ("Renderer",),
    "breaks": ("Break", "Cause", "Part", "Piece"),
    "call": ("Call", "Ending"),
    "certify": ("certifying",),
    "check": ("checking",),
    "differ": ("differences",),
    "edge": ("from_data", "to_data"),
    "experts": ("MissingRow", "RoutedExperts", "RowExperts"),
    "forest": ("Forest",),
    "kept": ("Why",),
    "node": ("EdgeKind", "Node"),
    "row": ("Row", "RowSpan", "RowTurn"),
    "sample_options": (
        "Conversation",
        "Cut",
        "Owner",
        "Retries",
        "Rewards",
        "RowPer",
        "SampleOptions",
        "TurnRule",
    ),
    "sample_rows": ("Samples", "Untrained", "samples"),
    "survey": ("probe", "probing"),
    "tally": ("Tally",),
    "weights": ("WeightVersion",),
}
_HOME = {name: module for module, names in _LATER.items() for name in names}


if not TYPE_CHECKING:  # a type checker has the names from above, and would believe any other

    def __getattr__(name: str) -> object:
        """Return a name that is imported when it is first asked for."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f".{_HOME[name]}", __name__), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
    "Located",
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
    "certifying",
    "checking",
    "clean",
    "continuing",
    "differences",
    "from_data",
    "is_multimodal",
    "locate",
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
