"""What is refused of the cases, and why; everything else must be bridged."""

from __future__ import annotations

from tests.frameworks.renderers.models import SHAPES

RESULTS = ("tool", "two tools", "tool then user")
NEED_HISTORY = {
    **{("deepseek-v3", shape): "UNPROVEN_TAIL" for shape in RESULTS},
    **{("smollm3", shape): "UNPROVEN_TAIL" for shape in SHAPES},
}
"""Refused where the history is not known, since these templates look into it: the reason by case."""
REFUSED = {
    # These templates take no such messages, or drop them.
    **{("gemma3", shape): "TEMPLATE_REFUSED" for shape in RESULTS},
    **{(name, shape): "SWALLOWED" for name in ("phi3", "phi4") for shape in RESULTS},
    ("llama3", "two tools"): "TEMPLATE_REFUSED",
    ("mistral-tekken", "tool then user"): "TEMPLATE_REFUSED",
}
"""Refused in any case."""
