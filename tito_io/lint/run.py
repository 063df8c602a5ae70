"""From a subject to its report: a template with each rendering, whatever goes wrong on the way said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from tito_core import InputError, Profile, Reason, TemplateRefused, TitoError, answer
from tito_core.seams.case import TurnKind
from tito_core.seams.certify import certify_questions
from tito_core.seams.facts import SAME, facts_questions
from tito_core.seams.probe import AFTER_ANSWER, AFTER_CALL, kinds, probe_questions
from tito_core.seams.profile import Case, Mode
from tito_io.cli.errors import visible
from tito_io.families.family import Family

from .advice import advice
from .budget import SECONDS, Budget, Hostile, LintBudget
from .example_conversation import TOOL
from .report import Finding, LintReport, Look, RenderingReport, tokens
from .seams import seams
from .subject import LintError, Subject
from .traits import at, renderings, running, traits
from .verdict import Judge


@attrs.frozen(kw_only=True)
class Wish:
    """How to look into templates."""

    args: Mapping[str, Any] = attrs.field(factory=dict)
    """Template arguments."""
    stops: tuple[str, ...] = ()
    """Ids or tokens; those of the folder where there are none."""
    seconds: float = SECONDS


def linted(subject: Subject, wish: Wish, tick: Tick = lambda _: None) -> LintReport:
    """Return what was found; what cannot be linted is a report with an error."""
    named = LintReport(path=subject.path, template=subject.template)
    try:
        family, notes = subject.load()
        lint = Lint(at(family, running()), _stops(family, wish.stops), Budget(wish.seconds))
        return lint.report(attrs.evolve(named, notes=notes), wish.args, tick)
    except Hostile as error:
        return attrs.evolve(named, error=_placed(subject, f"refused as hostile: {error}"))
    except TitoError as error:
        return attrs.evolve(named, error=_placed(subject, str(error)))


def _placed(subject: Subject, error: str) -> str:
    """Return an error in one line that names the path and the template."""
    path, name = subject.path, subject.template
    text = visible(error.replace(str(Path(path).absolute()), path))
    if text.startswith(path):
        return text
    return f"{path}: {text}" if Path(path).name == name else f"{path}: {name}: {text}"


@attrs.frozen
class Lint:
    """A template that is being looked into, with the budget that all its renderings share."""

    family: Family
    stop_ids: tuple[int, ...]
    budget: Budget

    def report(self, named: LintReport, args: Mapping[str, Any], tick: Tick) -> LintReport:
        """Look into every rendering; raises `LintError` where none takes a conversation."""
        every = renderings(self.meter, args)
        looks: list[Look] = []
        errors: list[str] = []
        for place, rendering in enumerate(every):
            try:
                looks.append(look(self._asked(rendering, _part(tick, place, len(every)))))
            except TemplateRefused as error:
                errors.append(visible(f"{rendering.label} it takes no conversation: {error}"))
        if not looks:
            raise LintError("; ".join(errors))
        return self._told(attrs.evolve(named, notes=(*named.notes, *errors), looks=tuple(looks)))

    def meter(self, rendering: RenderingReport) -> LintBudget:
        """Return what answers the kernel."""
        tools = [TOOL] if rendering.tools else None
        return LintBudget(self.family.tokenize_fn(tools=tools, **rendering.args), self.budget)

    def _asked(self, rendering: RenderingReport, tick: Tick) -> Inspection:
        return Inspection(
            family=self.family,
            rendering=rendering,
            meter=self.meter(rendering),
            stop_ids=self.stop_ids,
            tick=tick,
        )

    def _told(self, report: LintReport) -> LintReport:
        first = report.looks[0]
        opening = _opening(first)
        whole = attrs.evolve(
            report,
            stops=tuple((token, token.id in opening) for token in tokens(self.family, self.stop_ids)),
            suffix=tokens(self.family, first.profile.suffix),
        )
        return attrs.evolve(whole, advice=advice(whole))


def _part(tick: Tick, place: int, count: int) -> Callable[[float], None]:
    return lambda done: tick((place + done) / count)


def _opening(first: Look) -> frozenset[int]:
    """Return the ids with which the messages of other roles open."""
    parts = (part for seam in first.seams for part in seam.parts)
    return frozenset(part.tokens[0].id for part in parts if part.name == "opener")


def _stops(family: Family, given: tuple[str, ...]) -> tuple[int, ...]:
    """Return the ids that end a turn; a token may stand for its id."""
    if not given:
        return family.stop_ids
    return tuple(_stop(family, one) for one in given)


def _stop(family: Family, given: str) -> int:
    """Return an id; digits are one, though some token prints them too."""
    index = int(given) if given.isdecimal() else family.tokenizer.token_to_id(given)
    known = family.tokenizer.get_vocab(with_added_tokens=True).values() if given.isdecimal() else (index,)
    if index is None or index not in known:
        raise LintError(f"--stop-id {given}: is neither a token nor an id of the vocabulary")
    return index


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
