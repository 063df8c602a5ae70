"""Token in, token out: the pure kernel.

Every id that a model sampled comes back unchanged, or nothing comes back.
"""

from .ask import Ask, Asking, TokenizeFn, answer
from .edge import from_data, to_data
from .environment import clean
from .errors import InputError, TemplateRefused, TitoError, TokenizeError
from .ids import Ids
from .key import render_key
from .ledger import Ledger, Origin, Span
from .message import Message, Messages, is_multimodal
from .normal import Canonical, Forgiveness, normalize, same
from .policy import OddStop, Policy, Truncated
from .refusal import Reason, Refusal
from .step import Step
from .stitch import Stitched, stitch, stitching
from .suffix import suffix_asking, suffix_ids
from .trajectory import Trajectory

__all__ = [
    "Ask",
    "Asking",
    "Canonical",
    "Forgiveness",
    "Ids",
    "InputError",
    "Ledger",
    "Message",
    "Messages",
    "OddStop",
    "Origin",
    "Policy",
    "Reason",
    "Refusal",
    "Span",
    "Step",
    "Stitched",
    "TemplateRefused",
    "TitoError",
    "TokenizeError",
    "TokenizeFn",
    "Trajectory",
    "Truncated",
    "answer",
    "clean",
    "from_data",
    "is_multimodal",
    "normalize",
    "render_key",
    "same",
    "stitch",
    "stitching",
    "suffix_asking",
    "suffix_ids",
    "to_data",
]
