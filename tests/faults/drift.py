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
    Fault(
        "content that is lost with reasoning is not looked for",
        "drift/cause.py",
        'if dropped and rendered == ("" if lost in reasoning else lost.replace(reasoning, "", 1)):',
        'if dropped and rendered in ("", lost.replace(reasoning, "", 1)):',
        DRIFT,
    ),
    Fault(
        "a template that drops reasoning has rewritten what the parse lost",
        "drift/cause.py",
        "if lacks and dropped and added in content and not lost_calls:",
        "if False:",
        DRIFT,
    ),
    Fault(
        "calls that a template drops with the reasoning are lost by the parse alone",
        "drift/cause.py",
        "if lacks and dropped and added in content and not lost_calls:",
        "if lacks and dropped and added in content:",
        DRIFT,
    ),
    Fault(
        "content is not lost if the reasoning has its words",
        "drift/cause.py",
        'content = content.replace(reasoning_of(message), "", 1)',
        "pass",
        DRIFT,
    ),
)
