"""How many examples a property test takes, as a share of what the hypothesis profile says."""

from __future__ import annotations

from hypothesis import settings


def tries(share: float) -> settings:
    """Return settings for a test that needs a share of the profile's examples, or several times as many."""
    return settings(max_examples=max(1, round(settings().max_examples * share)))
