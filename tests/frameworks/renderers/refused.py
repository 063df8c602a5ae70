"""What is refused of the cases, and why; everything else must be bridged."""

from __future__ import annotations

RESULTS = ("tool", "two tools", "tool then user")
REFUSED = {
    # These templates take no such messages, or drop them.
    **{("gemma3", shape): "TEMPLATE_REFUSED" for shape in RESULTS},
    **{(name, shape): "SWALLOWED" for name in ("phi3", "phi4") for shape in RESULTS},
    ("llama3", "two tools"): "TEMPLATE_REFUSED",
    ("mistral-tekken", "tool then user"): "TEMPLATE_REFUSED",
}
"""Refused, whether the history is known or not."""
