"""Faults of profiles: of certifying cases, and of recognizing them."""

from __future__ import annotations

from tests.faults.fault import Fault

PROFILED = ("tests/core/test_profile.py", "tests/property/test_profiled.py")

FAULTS = (
    Fault(
        "a tail that depends on the turn's words is certified",
        "certify.py",
        "if not proof.ends((yield from ask(proof.found.unlike(history)))):",
        "if False:",
        PROFILED,
    ),
    Fault(
        "a tail that depends on the history is free",
        "certify.py",
        "        if not proof.ends(ids):\n            return Refusal(Reason.UNPROVEN_TAIL, HISTORY)\n",
        "",
        PROFILED,
    ),
    Fault(
        "a dear case is asked in a short history",
        "bridge.py",
        "turn.past if case.mode is Mode.HISTORY else kindred(turn.after, turn.history)[recipe.past]",
        "kindred(turn.after, turn.history)[recipe.past]",
        PROFILED,
    ),
    Fault(
        "the generation prompt is not compared",
        "bridge.py",
        "and bridge[max(spoken, 0) :] == recipe.speaks",
        "and True",
        PROFILED,
    ),
    Fault(
        "the close is not compared",
        "bridge.py",
        "bridge[: len(recipe.close)] == recipe.close",
        "True",
        PROFILED,
    ),
    Fault(
        "a whole conversation's end is not compared",
        "check.py",
        "if ids[len(ids) - len(found.bridge) :] == found.bridge:",
        "if ids:",
        PROFILED,
    ),
    Fault(
        "the first sample alone makes the recipe",
        "certify.py",
        "        shown += found\n",
        "        shown = shown or found\n",
        PROFILED,
    ),
)
