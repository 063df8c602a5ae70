"""Keep the token ids of a conversation over its turns (token in, token out): the pure kernel.

Build the ids of the next prompt from a trajectory: every sampled id stays unchanged, or tito refuses.

The names below are the kernel. Everything else is imported from its own place: `tito_core.data` (values as
plain data), `tito_core.normalization`, `tito_core.seams` (what a chat template writes between turns),
`tito_core.samples` (training rows) and `tito_core.drift` (where a fresh render would differ).
"""

# The bridge at the level of ids, for callers without steps.
from .bridge import Bridge, Extension

# Values: what was said, sent and sampled.
# Errors, by whose fault they are.
from .errors import InputError, TemplateRefused, TitoError, TokenizeError
from .ids import Ids
from .ledger import Ledger, Origin, Span

# Stitching, in one call or in two halves.
from .locate import Located, locate
from .message import Message, Messages
from .normalization.key import render_key
from .normalization.receipts import Forgiveness

# Choices.
from .policy import OddStop, Policy, Truncated

# What the kernel asks, and the driver that answers from a plain function.
from .questions import Question, Questions, Rendered, Renderer, TokenizeFn, answer

# Answers.
from .refusal import Reason, Refusal
from .sampling_mask import SamplingMask
from .seams.suffix import suffix_ids, suffix_questions
from .step import Step
from .stitch import Stitched, continue_questions, stitch, stitch_questions, try_stitch
from .trajectory import Trajectory

__version__ = "1.0.0rc1"

__all__ = [
    "Bridge",
    "Extension",
    "Forgiveness",
    "Ids",
    "InputError",
    "Ledger",
    "Located",
    "Message",
    "Messages",
    "OddStop",
    "Origin",
    "Policy",
    "Question",
    "Questions",
    "Reason",
    "Refusal",
    "Rendered",
    "Renderer",
    "SamplingMask",
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
    "continue_questions",
    "locate",
    "render_key",
    "stitch",
    "stitch_questions",
    "suffix_ids",
    "suffix_questions",
    "try_stitch",
]
