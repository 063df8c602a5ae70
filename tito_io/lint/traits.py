"""What else a person should know of a template: the profile's facts, and what the clock does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import attrs

from tito_core import Profile, TemplateRefused
from tito_core.seams.case import TurnKind
from tito_io.families.family import Bound, Family

from .budget import LintBudget
from .example_conversation import SYSTEM, USER
from .report import SWITCHES, RenderingReport
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


THOUGHT = {"reasoning": "Add them.", "reasoning_content": "Add them."}
TOLD = ((USER,), (SYSTEM, USER, {"role": "assistant", "content": "Seven.", **THOUGHT}, USER))
Metering = Callable[[RenderingReport], LintBudget]


def renderings(metering: Metering, given: Mapping[str, Any]) -> tuple[RenderingReport, ...]:
    """Return the renderings to look into, the usual one first; raises `Hostile`.

    `given` are template arguments that all of them get; a switch among them is not tried.
    """
    usual = RenderingReport(tools=True, args=given)
    plain = RenderingReport(tools=False, args=given)
    known = _written(metering, usual)
    if _written(metering, usual) != known:  # it is never the same: nothing can be found by trying
        return (usual,)
    others = [plain] if _written(metering, plain) != known else []
    return (usual, *_switched(metering, usual, known), *others)


def _switched(
    metering: Metering, usual: RenderingReport, known: tuple[str | None, ...]
) -> Iterator[RenderingReport]:
    """Yield a rendering for each value of a switch that changes something."""
    for name in SWITCHES:
        for value in (False, True) if name not in usual.args else ():
            turned = RenderingReport(tools=usual.tools, args={**usual.args, name: value})
            if _written(metering, turned) != known:
                yield turned


def _written(metering: Metering, rendering: RenderingReport) -> tuple[str | None, ...]:
    """Return what is written of short conversations; None for one that the template rejects."""
    meter = metering(rendering)
    return tuple(_text(meter, messages) for messages in TOLD)


def _text(meter: LintBudget, messages: tuple[dict[str, Any], ...]) -> str | None:
    try:
        return meter.text(messages, speaking=True)
    except TemplateRefused:
        return None
