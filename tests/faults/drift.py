"""Faults of the audit."""

from __future__ import annotations

from tests.faults.fault import Fault

DRIFT = ("tests/core/drift",)

FAULTS = (
    Fault(
        "an image without identity is none that was seen",
        "drift/numbered.py",
        "one.identity or (seen.identity if seen else None)",
        "one.identity",
        DRIFT,
    ),
    Fault(
        "messages before an edit are given the ranges after it",
        "drift/renderings.py",
        "return [*self.earlier.step.media, *self.call.step.media[self.call.step.media.length - added :]]",
        "return list(self.call.step.media)",
        DRIFT,
    ),
    Fault(
        "all ranges of a prompt follow those of the turn before",
        "drift/renderings.py",
        "*self.call.step.media[self.call.step.media.length - added :]]",
        "*self.call.step.media]",
        DRIFT,
    ),
    Fault(
        "merged conversations are given no ranges",
        "drift/counters.py",
        "add_generation_prompt=False, ranges=step.media)",
        "add_generation_prompt=False)",
        DRIFT,
    ),
)
