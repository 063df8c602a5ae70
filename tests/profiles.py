"""How much a test tries, by hypothesis profile."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hypothesis import settings

KINDS = ("gemma3", "gpt-oss", "llama3", "mistral-tekken", "qwen3")
"""Families whose vocabularies differ in kind. Each takes up to twenty seconds to load and to ask."""


EVERYTHING = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
"""Whether tests that usually take a sample take all there is."""


def tries(share: float) -> settings:
    """Return settings for a test that needs a share of the profile's examples, or several times as many."""
    return settings(max_examples=max(1, round(settings().max_examples * share)))


def of_each_kind(families: Sequence[str]) -> list[str]:
    """Return a family for each kind of vocabulary; all families with the profile `soak`."""
    return [name for name in families if EVERYTHING or name in KINDS]
