"""Find how a template behaves: its seams, which renderings differ, its facts, and the time of day in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import count, product
from typing import Any

import attrs

from tito_core import TemplateRefused
from tito_core.seams.case import TurnKind
from tito_core.seams.history import akin_histories
from tito_core.seams.profile import Case, Profile, recognize
from tito_core.seams.sample import sample_environment, sample_turn
from tito_core.seams.seam import SHORT, common_prefix
from tito_core.seams.turn_form import TurnForm
from tito_io.families.family import Family

from .example_conversation import SYSTEM, USER
from .meter import LintMeter
from .report import AFTER_RESULT, SWITCHES, DrawnSeam, LintRendering, SeamPart, tokens

NOW = datetime(2026, 1, 15, 9, 30, 15)  # noqa: DTZ001  # templates print the wall clock, which has no zone
LATER = NOW + timedelta(days=400, hours=5, minutes=7, seconds=11)
OPENING, TAIL = "in the opening", "after each turn"
REASONING = {"reasoning": "Add them.", "reasoning_content": "Add them."}
TRIED = ((USER,), (SYSTEM, USER, {"role": "assistant", "content": "Seven.", **REASONING}, USER))
"""Conversations that are rendered to see whether a tool or a switch changes anything."""
TEXTS = ("Lisbon", "Quite 40 of them")
"""Texts without a common beginning or end, so that two bridges differ in the text alone."""
Metering = Callable[[LintRendering], LintMeter]


def renderings(metering: Metering, args: Mapping[str, Any]) -> tuple[LintRendering, ...]:
    """Return the renderings to lint, the usual one first; raises `Hostile`.

    Each value of a switch is tried, and counts if it changes what is written. `args` are template arguments
    of all renderings; a switch among them is not tried.
    """
    usual, bare = LintRendering(tools=True, args=args), LintRendering(tools=False, args=args)
    known = _rendered(metering, usual)
    if _rendered(metering, usual) != known:  # it differs each time, so a difference shows nothing
        return (usual,)
    switched = [
        LintRendering(tools=True, args={**args, name: value})
        for name in SWITCHES
        for value in ((False, True) if name not in args else ())
    ]
    return (usual, *(one for one in (*switched, bare) if _rendered(metering, one) != known))


def _rendered(metering: Metering, rendering: LintRendering) -> tuple[str | None, ...]:
    """Return the texts of the tried conversations; None for one that the template rejects."""
    meter = metering(rendering)
    return tuple(meter.text_or_none(messages) for messages in TRIED)


def traits(profile: Profile, meter: LintMeter) -> Mapping[str, Any]:
    """Return the profile's facts by name, and as `clock` where the time of day is printed, or None."""
    names = [field.name for field in attrs.fields(type(profile.facts)) if field.name != "openers"]
    facts = {name: getattr(profile.facts, name) for name in names}
    return {**facts, "clock": _clock(profile, meter)}


def ticking_clock() -> Callable[[], datetime]:
    """Return a clock that advances by a microsecond per render.

    A template that prints microseconds never repeats itself, as in reality. Date and time of day are fixed,
    so that the same template always has the same report.
    """
    ticks = count()
    return lambda: NOW + timedelta(microseconds=next(ticks))


def _clock(profile: Profile, meter: LintMeter) -> str | None:
    """Return where the time of day is printed: render at two different times and compare."""
    now, later = meter.at(lambda: NOW), meter.at(lambda: LATER)
    case = profile.case(TurnKind(before="user", reasoning=False, calls=0, content="text"), ("user",))
    if case is not None and bridges(case, now) != bridges(case, later):
        return TAIL
    prompts = ((USER,), (SYSTEM, USER))
    return OPENING if any(now.text_or_none(one) != later.text_or_none(one) for one in prompts) else None


def seams(family: Family, profile: Profile, meter: LintMeter) -> tuple[DrawnSeam, ...]:
    """Return the seam before what may follow a turn, from the first case that shows it."""
    drawn: dict[str, DrawnSeam] = {}
    for role, content in product(("user", "tool", "system", AFTER_RESULT), ("text", "empty")):
        shape = tuple(role.split())
        kind = TurnKind(before="user", reasoning=False, calls=int(shape[0] == "tool"), content=content)
        case = None if role in drawn else profile.case(kind, shape)
        pair = bridges(case, meter) if case is not None else None
        if pair is not None and case is not None and case.recipe is not None:
            parts = _parts(family, profile, pair, len(case.recipe.speaks))
            drawn[role] = DrawnSeam(role=role, parts=parts)
    return tuple(drawn.values())


def bridges(case: Case, meter: LintMeter) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return what follows a turn of a case, with two different texts in the message right after it.

    None if the case is refused.
    """
    recipe = case.recipe
    if recipe is None:
        return None
    history = akin_histories(case.kind.before, (SYSTEM, USER))[recipe.past]
    turn = sample_turn(case.kind, ["find"] * case.kind.calls)
    form = TurnForm(turn, recipe.place, recipe.as_object)
    message, *others = sample_environment(case.shape, turn, 1, TEXTS[0])
    pair = []
    for text in TEXTS:
        prompt = (*history, form.write(SHORT), {**message, "content": text}, *others)
        try:
            since = SHORT if recipe.cut else None
            whole = meter.rendered(prompt, since, add_generation_prompt=True, ids=True).ids
        except TemplateRefused:
            return None
        pair.append(recognize(recipe, tuple(whole)))
    one, two = pair
    return None if one is None or two is None else (one, two)


def _parts(
    family: Family, profile: Profile, pair: tuple[tuple[int, ...], tuple[int, ...]], speaks: int
) -> tuple[SeamPart, ...]:
    """Return the pieces of the first bridge; where the two differ is the text."""
    one, two = pair
    size = len(profile.suffix) if one[: len(profile.suffix)] == profile.suffix else 0
    opened = common_prefix(one, two)
    # A common end must not overlap the common beginning.
    closed = min(common_prefix(one[::-1], two[::-1]), min(len(one), len(two)) - opened)
    ended = len(one) - closed
    spoken = max(len(one) - speaks, ended)
    named = (
        ("close", one[:size]),
        ("opener", one[min(size, opened) : opened]),
        ("text", one[opened:ended]),
        ("its close", one[ended:spoken]),
        ("generation prompt", one[spoken:]),
    )
    return tuple(SeamPart(name, tokens(family, ids)) for name, ids in named if ids)
