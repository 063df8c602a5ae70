"""What else a person should know of a template: the profile's facts, and what the clock does to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import attrs

from tito_core import Profile, TemplateRefused
from tito_core.seams.case import TurnKind
from tito_io.families.family import Bound, Family

from .budget import LintBudget
from .example_conversation import SYSTEM, USER
from .seams import bridges

NOW = datetime(2026, 1, 15, 9, 30, 15)  # noqa: DTZ001  # templates print the wall clock, which has no zone
LATER = NOW + timedelta(days=400, hours=5, minutes=7, seconds=11)
OPENING, TAIL = "in the opening", "after each turn"


def traits(family: Family, profile: Profile, meter: LintBudget) -> Mapping[str, Any]:
    """Return the facts by name, and where the template prints the time of day (`clock`), None for nowhere."""
    facts = {
        field.name: getattr(profile.facts, field.name)
        for field in attrs.fields(type(profile.facts))
        if field.name != "openers"
    }
    return {**facts, "clock": _clock(family, profile, meter)}


def at(family: Family, clock: Callable[[], datetime]) -> Family:
    """Return a family with another clock."""
    return attrs.evolve(family, clock=clock)


def running() -> Callable[[], datetime]:
    """Return a clock that goes on by a microsecond a render: who prints those is never twice the same.

    Hours and days stay, so that the same template is linted alike whenever that is.
    """
    ticks = count()
    return lambda: NOW + timedelta(microseconds=next(ticks))


def _clock(family: Family, profile: Profile, meter: LintBudget) -> str | None:
    """Render under two clocks."""
    now, later = (_timed(family, meter, when) for when in (NOW, LATER))
    case = profile.case(TurnKind(before="user", reasoning=False, calls=0, content="text"), ("user",))
    if case is not None and bridges(case, now) != bridges(case, later):
        return TAIL
    return OPENING if any(_text(now, ask) != _text(later, ask) for ask in ((USER,), (SYSTEM, USER))) else None


def _timed(family: Family, meter: LintBudget, when: datetime) -> LintBudget:
    """Return a meter of a family at another time, with the same budget."""
    bound = Bound(at(family, lambda: when), meter.bound.template, meter.bound.variables)
    return LintBudget(bound, meter.budget)


def _text(meter: LintBudget, messages: tuple[dict[str, Any], ...]) -> str | None:
    try:
        return meter.text(messages, speaking=True)
    except TemplateRefused:
        return None
