"""From a subject to its report: a template with each rendering, whatever goes wrong on the way said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from tito_core import TemplateRefused, TitoError
from tito_io.cli.visible import visible
from tito_io.families.family import Family

from .advice import advice
from .budget import SECONDS, Budget, Hostile, LintBudget
from .example_conversation import TOOL
from .inspect import Inspection, Tick, look
from .renderings import renderings
from .report import LintReport, Look, RenderingReport
from .subject import LintError, Subject
from .tokens import tokens
from .traits import at, running


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
