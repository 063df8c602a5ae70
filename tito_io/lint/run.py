"""Lint a template: certify each case in each rendering, then check it with an example conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from tito_core import InputError, Reason, TemplateRefused, TitoError, answer
from tito_core.seams.case import TurnKind
from tito_core.seams.certify import certify_questions
from tito_core.seams.facts import SAME, facts_questions
from tito_core.seams.probe import AFTER_ANSWER, AFTER_CALL, kinds, probe_questions
from tito_core.seams.profile import Case, Mode, Profile
from tito_io.cli.errors import visible
from tito_io.families.chunk_encoder import ChunkEncoder
from tito_io.families.family import Family
from tito_io.families.stop_ids import LARGEST_ID

from .advice import advice
from .budget import SECONDS, Budget, Hostile
from .example_conversation import ANSWER, TOOL, USER
from .images import ImageLinter
from .meter import LintMeter
from .report import Finding, LintRendering, LintReport, Look, tokens
from .subject import LintError, Subject
from .traits import renderings, seams, ticking_clock, traits
from .verdict import CaseChecker

CaseName = tuple[TurnKind, tuple[str, ...]]
"""A kind of turn, and the roles after it."""
OnShare = Callable[[float], None]
"""Called with the share of the work that is done, from 0 to 1."""
CERTIFIED = 0.7
"""The share that is done once every case has its certificate."""


@attrs.frozen(kw_only=True)
class LintSettings:
    """How to lint templates.

    Attributes:
        args: Template arguments.
        stops: Ids or tokens that end turns; without any, those of the model folder.
        seconds: Processor time per template.
    """

    args: Mapping[str, Any] = attrs.field(factory=dict)
    stops: tuple[str, ...] = ()
    seconds: float = SECONDS


def lint_subject(subject: Subject, settings: LintSettings, on_share: OnShare = lambda _: None) -> LintReport:
    """Return the report of a template; if it cannot be linted, the report has the error."""
    report = LintReport(path=subject.path, template=subject.template)
    try:
        loaded = subject.load()
        family = loaded.family
        report = attrs.evolve(report, source=family.templates["default"].source.origin)
        stop_ids = tuple(_stop_id(family, one) for one in settings.stops) or family.stop_ids
        budget, encoder = Budget(settings.seconds), ChunkEncoder.of(family.tokenizer)
        lint = _TemplateLint(attrs.evolve(family, clock=ticking_clock()), stop_ids, budget, encoder)
        report = attrs.evolve(report, notes=loaded.notes, lacking=loaded.lacking)
        return lint.report(report, settings.args, on_share)
    except TitoError as error:
        return attrs.evolve(report, error=_with_place(subject, error))


def _with_place(subject: Subject, error: TitoError) -> str:
    """Return an error in one line that names the path and the template."""
    path, name = subject.path, subject.template
    text = f"not linted: {error}" if isinstance(error, Hostile) else str(error)
    text = visible(text.replace(str(Path(path).absolute()), path))
    if text.startswith(path):
        return text
    return f"{path}: {text}" if Path(path).name == name else f"{path}: {name}: {text}"


def _stop_id(family: Family, stop: str) -> int:
    """Return the id of a stop; digits are an id, even if some token prints them."""
    index = int(stop) if stop.isdecimal() else family.tokenizer.token_to_id(stop)
    if index is None or index > LARGEST_ID or family.tokenizer.id_to_token(index) is None:
        raise LintError(f"--stop-id {stop}: is neither a token nor an id of the vocabulary")
    return index


@attrs.frozen
class _TemplateLint:
    """One template with the budget that all its renderings share."""

    family: Family
    stop_ids: tuple[int, ...]
    budget: Budget
    encoder: ChunkEncoder

    def report(self, report: LintReport, args: Mapping[str, Any], on_share: OnShare) -> LintReport:
        """Return the report with every rendering; raises `LintError` if none accepts a conversation."""
        looks: list[Look] = []
        errors: list[str] = []
        for inspection in self._inspections(args, on_share):
            try:
                looks.append(inspection.look())
            except TemplateRefused as error:
                errors.append(visible(f"{inspection.rendering.label} it accepts no conversation: {error}"))
        if not looks:
            raise LintError("; ".join(errors))
        parts = (part for seam in looks[0].seams for part in seam.parts)
        openers = {part.tokens[0].id for part in parts if part.name == "opener"}
        report = attrs.evolve(
            report,
            notes=(*report.notes, *errors),
            looks=tuple(looks),
            stops=tuple((token, token.id in openers) for token in tokens(self.family, self.stop_ids)),
            suffix=tokens(self.family, looks[0].profile.suffix),
            last_stop=self._stops_last(looks[0]),
            words=self.meter(looks[0].rendering).template_words,
            media=ImageLinter(
                self.family, self.meter(looks[0].rendering), looks[0].profile.suffix, self.stop_ids
            ).report(),
        )
        return attrs.evolve(report, advice=advice(report))

    def _stops_last(self, look: Look) -> bool:
        """Return whether the template writes a stop id at the end of a turn that nothing follows."""
        try:
            turn = {"role": "assistant", "content": ANSWER}
            text = self.meter(look.rendering).text([USER, turn], speaking=False)
        except TemplateRefused:
            return False
        return not set(self.stop_ids).isdisjoint(self.encoder.ids(text.rpartition(ANSWER)[2]))

    def _inspections(self, args: Mapping[str, Any], on_share: OnShare) -> Iterator[_Inspection]:
        every = renderings(self.meter, args)
        for place, rendering in enumerate(every):

            def on_part(share: float, place: int = place) -> None:
                on_share((place + share) / len(every))

            yield _Inspection(self.family, rendering, self.meter(rendering), self.stop_ids, on_part)

    def meter(self, rendering: LintRendering) -> LintMeter:
        """Return what renders for the kernel."""
        tools = [TOOL] if rendering.tools else None
        return LintMeter(self.family.tokenize_fn(tools=tools, **rendering.args), self.budget, self.encoder)


@attrs.frozen
class _Inspection:
    """A template with one rendering, whose `meter` renders within the budget."""

    family: Family
    rendering: LintRendering
    meter: LintMeter
    stop_ids: tuple[int, ...]
    on_share: OnShare

    def look(self) -> Look:
        """Return what was found; raises `Hostile`, and `TemplateRefused` if no conversation is accepted."""
        budget = self.meter.budget
        renders, seconds = budget.renders, budget.used
        profile = self._certified(self._profile())
        return Look(
            rendering=self.rendering,
            profile=profile,
            findings=tuple(self._findings(profile)),
            seams=seams(self.family, profile, self.meter),
            facts=traits(profile, self.meter),
            renders=budget.renders - renders,
            seconds=budget.used - seconds,
            opening=self.family.decode(profile.facts.opening),
        )

    def _profile(self) -> Profile:
        """Return a profile without cases; if an answer's content is lost, with every case refused."""
        try:
            found = answer(probe_questions(self.stop_ids), self.meter)
            return attrs.evolve(found, words=self.meter.template_words)
        except InputError as error:
            detail = str(error)
        lost = Profile(suffix=(), stop_ids=self.stop_ids, facts=answer(facts_questions(()), self.meter))
        cases = [
            Case(kind=kind, shape=shape, mode=Mode.REFUSED, reason=Reason.UNPROVEN_TAIL, detail=detail)
            for kind, shape in self._cases(lost)
        ]
        return lost.then(*cases)

    def _certified(self, profile: Profile) -> Profile:
        """Return the profile with a certificate for every case."""
        missing = [name for name in self._cases(profile) if name not in profile.known]
        cases: list[Case] = []
        for place, name in enumerate(missing):
            asking = profile.asked(certify_questions(*name, profile.suffix, profile.stop_ids))
            cases.append(answer(asking, self.meter))
            self.on_share(CERTIFIED * place / len(missing))
        return profile.then(*cases)

    def _findings(self, profile: Profile) -> Iterator[Finding]:
        """Yield a finding for each case, and then for those whose turn may be cut short."""
        checker = CaseChecker(self.family, self.meter, profile)
        usual = list(self._cases(profile))
        # A turn is linted cut short, too, if it has at most one call and usual messages follow.
        cut_short = [
            (kind, shape)
            for kind, shape in usual
            if kind.calls <= 1
            and kind.content == "text"
            and shape in (AFTER_CALL if kind.calls else AFTER_ANSWER)
        ]
        every = [*((name, False) for name in usual), *((name, True) for name in cut_short)]
        for place, (name, cut) in enumerate(every):
            yield checker.finding(profile.known[name], cut=cut)
            self.on_share(CERTIFIED + (1 - CERTIFIED) * place / len(every))

    def _cases(self, profile: Profile) -> Iterator[CaseName]:
        """Yield the cases to lint: tool calls only with tools, reasoning only if it is not switched off.

        Calls with a null or missing content are linted only if the template writes these differently from an
        empty one.
        """
        facts = profile.facts
        contents = (("null", facts.null_content), ("absent", facts.absent_content))
        skipped = {name for name, fact in contents if fact == SAME}
        for kind, shape in kinds():
            called = bool(kind.calls) or kind.before == "tool"
            allowed = self.rendering.tools >= called and self.rendering.thinks >= kind.reasoning
            if allowed and kind.content not in skipped:
                yield kind, shape
