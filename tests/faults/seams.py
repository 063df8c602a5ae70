"""Faults of profiles: of certifying cases, and of recognizing them."""

from __future__ import annotations

from tests.faults.fault import Fault

PROFILED = ("tests/core/seams/test_profile.py", "tests/property/test_profiled.py")
CERTIFIED = ("tests/core/seams/test_certify.py",)
JOINED = ("tests/core/test_join.py",)
KNOWN = ("tests/model/compare/test_known.py",)

FAULTS = (
    Fault(
        "a tail that depends on the turn's words is certified",
        "seams/certify.py",
        "if not proof.ends((yield from ask(proof.located.unlike(history)))):",
        "if False:",
        PROFILED,
    ),
    Fault(
        "a tail that depends on the history is free",
        "seams/certify.py",
        "        if not proof.ends(ids):\n            return Refusal(Reason.UNPROVEN_TAIL, HISTORY)\n",
        "",
        PROFILED,
    ),
    Fault(
        "only one id before a tail is compared in other histories",
        "seams/seam.py",
        "return Seam(tuple(short), first, LONGER, (*short[first - 1 : first], *added))",
        "return Seam(tuple(short), first)",
        KNOWN,
    ),
    Fault(
        "the rest of a call may differ with the history",
        "seams/prove.py",
        "if None in rests or len(rests) > 1:",
        "if None in rests:",
        KNOWN,
    ),
    Fault(
        "the rest of an unknown turn's call may differ with the history",
        "seams/prove.py",
        "if None in rests or len(rests) > 1:",
        "if None in rests or (message is None and len(rests) > 1):",
        KNOWN,
    ),
    Fault(
        "the rest of a call may differ with the history that a case is certified for",
        "seams/certify.py",
        "if len({one.recipe.rest for one in found}) > 1:",
        "if False:",
        KNOWN,
    ),
    Fault(
        "a suffix in a call is its close",
        "seams/prove.py",
        "return found if sure else []",
        "return found",
        KNOWN,
    ),
    Fault(
        "a stop in a call may open what follows",
        "seams/prove.py",
        " and stop not in tail[:end]",
        "",
        ("tests/core/seams/test_prove.py",),
    ),
    Fault(
        "a stop that ends the rest of a call is an odd one",
        "join.py",
        "odd = not truncated and not written and ended.isdisjoint(call[-1:])",
        "odd = not truncated and not written",
        JOINED,
    ),
    Fault(
        "a stop within the rest of a call is believed",
        "join.py",
        "(_may_continue(policy.odd_stop, sampled) and ended.isdisjoint(call))",
        "_may_continue(policy.odd_stop, sampled)",
        JOINED,
    ),
    Fault(
        "what a turn ends with is written twice where no stops are known",
        "join.py",
        "if odd and (doubtful or not",
        "if odd and (False or not",
        JOINED,
    ),
    Fault(
        "what stands before the next opener is written twice",
        "join.py",
        "if counted and first > closed and tuple(turn[-first:]) == tuple(tail[:first]):",
        "if False:",
        JOINED,
    ),
    Fault(
        "a case that depends on the history is asked in a short one",
        "seams/profile.py",
        "turn.past if mode is Mode.HISTORY else known[recipe.past]",
        "known[recipe.past]",
        PROFILED,
    ),
    Fault(
        "the generation prompt is not compared",
        "seams/profile.py",
        "return tail if whole and tail[end:] == recipe.speaks else None",
        "return tail if whole else None",
        PROFILED,
    ),
    Fault(
        "the close is not compared",
        "seams/profile.py",
        "and tail[: len(recipe.close)] == recipe.close",
        "and True",
        PROFILED,
    ),
    Fault(
        "a whole conversation's end is not compared",
        "recheck.py",
        "if rest < 0 or seam.tail[rest:] != stitched.added:",
        "if rest < 0:",
        PROFILED,
    ),
    Fault(
        "a word of the new messages is taken for the turn's",
        "seams/profile.py",
        "None if not recipe.cut or says((*past, *environment), SHORT) else SHORT",
        "SHORT if recipe.cut else None",
        PROFILED,
    ),
    Fault(
        "a word of the history's is taken for the turn's",
        "seams/profile.py",
        "or says((*past, *environment), SHORT)",
        "or says(environment, SHORT)",
        PROFILED,
    ),
    Fault(
        "a known case is believed whatever the new messages say",
        "seams/profile.py",
        "return proof if (yield from _depends_on_nothing_else(turn, proof, recipe, text)) else None",
        "return proof",
        PROFILED,
    ),
    Fault(
        "the texts of two histories are not compared",
        "seams/profile.py",
        "return grown(text.partition(SHORT)[2], longer.text.partition(SHORT)[2], count)",
        "return True",
        PROFILED,
    ),
    Fault("short histories are enough", "seams/certify.py", "    if not unlike:", "    if False:", CERTIFIED),
    Fault("a profile serves any key", "locate.py", "profile.key in {None, self.key}", "True", PROFILED),
    Fault(
        "what a turn sampled of its close is not compared",
        "recheck.py",
        "sampled[len(sampled) - rest :] == seam.tail[:rest]",
        "True",
        PROFILED,
    ),
    Fault(
        "the first sample alone makes the recipe",
        "seams/certify.py",
        "        shown += found\n",
        "        shown = shown or found\n",
        PROFILED,
    ),
    Fault(
        "calls are lengthened with the texts, whose share they hide",
        "seams/prove.py",
        "for i, message in enumerate(located.environment) if not calls_of(message)}",
        "for i, message in enumerate(located.environment)}",
        KNOWN,
    ),
    Fault(
        "any last id of a call that was cut is its stop",
        "seams/prove.py",
        "known = stop in turn.stops or not turn.stops",
        "known = True",
        KNOWN,
    ),
)
