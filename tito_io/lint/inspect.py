"""Looking into one template with one rendering: the certificates, then a conversation with words for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from tito_core import InputError, Profile, Reason, answer
from tito_core.seams.case import TurnKind
from tito_core.seams.certify import certify_questions
from tito_core.seams.facts import SAME, facts_questions
from tito_core.seams.probe import AFTER_ANSWER, AFTER_CALL, kinds, probe_questions
from tito_core.seams.profile import Case, Mode
from tito_io.families.family import Family

from .budget import LintBudget
from .report import Finding, Look, RenderingReport
from .seams import seams
from .traits import traits
from .verdict import Judge

Named = tuple[TurnKind, tuple[str, ...]]
Tick = Callable[[float], None]
"""Told how far a look is, from 0 to 1."""
PROBED = 0.7
"""How far it is once every case has its certificate."""


@attrs.frozen(kw_only=True)
class Inspection:
    """What to look into a template with."""

    family: Family
    rendering: RenderingReport
    meter: LintBudget
    stop_ids: tuple[int, ...]
    tick: Tick = lambda _: None


def look(asked: Inspection) -> Look:
    """Return all that was found; raises `Hostile`, and `TemplateRefused` where not even a chat is taken."""
    budget = asked.meter.budget
    renders, seconds = budget.renders, budget.used
    profile = _certified(asked, _profile(asked))
    return Look(
        rendering=asked.rendering,
        profile=profile,
        findings=tuple(_findings(asked, profile)),
        seams=seams(asked.family, profile, asked.meter),
        facts=traits(asked.family, profile, asked.meter),
        renders=budget.renders - renders,
        seconds=budget.used - seconds,
    )


def _profile(asked: Inspection) -> Profile:
    """Return a profile without cases; with all of them, refused, where an answer's content is lost."""
    try:
        return answer(probe_questions(asked.stop_ids, cases=False), asked.meter)
    except InputError as error:
        told = str(error)
    lost = Profile(suffix=(), stop_ids=asked.stop_ids, facts=answer(facts_questions(()), asked.meter))
    return lost.then(*(_lost(named, told) for named in wanted(asked.rendering, lost)))


def _findings(asked: Inspection, profile: Profile) -> Iterator[Finding]:
    """Yield what becomes of each case, and then of those whose turn was cut short."""
    judge = Judge(asked.family, asked.meter, profile)
    usual = [(named, False) for named in wanted(asked.rendering, profile)]
    every = [*usual, *((named, True) for named, _ in usual if _may_be_cut(named))]
    for place, (named, cut) in enumerate(every):
        yield judge.finding(profile.known[named], cut=cut)
        asked.tick(PROBED + (1 - PROBED) * place / len(every))


def wanted(rendering: RenderingReport, profile: Profile) -> Iterator[Named]:
    """Yield the cases to look into: tool calls only where there are tools, reasoning where it is not off.

    Calls beside a null or missing content count only where the template tells those from an empty one.
    """
    facts = profile.facts
    skipped = {
        name
        for name, told in (("null", facts.null_content), ("absent", facts.absent_content))
        if told == SAME
    }
    for kind, shape in kinds():
        called = bool(kind.calls) or kind.before == "tool"
        if kind.content not in skipped and rendering.tools >= called and rendering.thinks >= kind.reasoning:
            yield kind, shape


def _may_be_cut(named: Named) -> bool:
    """Tell whether a turn is looked into that was cut short too: no turn with many calls."""
    kind, shape = named
    usual = AFTER_CALL if kind.calls else AFTER_ANSWER
    return kind.calls <= 1 and kind.content == "text" and shape in usual


def _certified(asked: Inspection, profile: Profile) -> Profile:
    """Return the profile with every case, asked for or refused already."""
    missing = [named for named in wanted(asked.rendering, profile) if named not in profile.known]
    found: list[Case] = []
    for place, named in enumerate(missing):
        found.append(answer(certify_questions(*named, profile.suffix, profile.stop_ids), asked.meter))
        asked.tick(PROBED * place / len(missing))
    return profile.then(*found)


def _lost(named: Named, detail: str) -> Case:
    """Return the case of a template that loses an answer's content: nothing of it can be stitched."""
    kind, shape = named
    return Case(kind=kind, shape=shape, mode=Mode.REFUSED, reason=Reason.UNPROVEN_TAIL, detail=detail)
