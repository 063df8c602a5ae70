"""A cell of the table: one template, one conversation, what the kernel makes of it and whether it is true."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import attrs

from tests.families.bridged import (
    EXACT,
    REFUSED,
    WRONG,
    Bridged,
    CountingQuestions,
    RememberedAnswers,
    bridged,
)
from tests.families.conversations import SPOKEN, TOOLS, Case, cases
from tests.families.subtraction import subtracted
from tests.families.tail import Tail, ending, loses, tail, written
from tito_core import (
    OddStop,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    answer,
    locate,
    stitch_questions,
)
from tito_core.seams.case import case_of
from tito_core.seams.certify import certify_questions
from tito_core.seams.probe import probe_questions
from tito_core.seams.profile import Profile
from tito_io.families.family import Bound, Family
from tito_io.families.folder import Folder

UNRENDERABLE = "unrenderable"
SAMPLED = (40, 41, 42)
"""Ids that stand for what the engine sampled; no template would write them."""
RENDERINGS: tuple[Mapping[str, Any], ...] = tuple(
    {"tools": tools, **args} for tools, args in product((None, TOOLS), ({}, {"enable_thinking": False}))
)
SHAPES = tuple(case.shape for case in cases(as_object=True, content=""))


@attrs.frozen
class Cell:
    """One answer of the kernel, judged."""

    family: str
    template: str
    rendering: str
    shape: str
    verdict: str
    """With a profile, which is how it is meant to be used."""
    reason: str = ""
    renders: int = 0
    """What the stitch asked for, the profile being known."""
    bare: str = UNRENDERABLE
    """Without a profile."""
    bare_renders: int = 0
    subtraction: str = UNRENDERABLE
    """What the difference of two renders makes of it."""
    bridges: tuple[Bridged, ...] = ()
    """What a bridge without a profile makes of it, at each level of knowledge."""
    profiled: tuple[Bridged, ...] = ()
    """The same with a profile."""


@attrs.frozen
class Subject:
    """A template to look into."""

    name: str
    template: str
    family: Family
    stops: frozenset[int]


def subjects(folder: Path) -> Iterator[Subject]:
    """Yield every template of a model folder."""
    notes = folder / "meta.json"
    named = json.loads(notes.read_text())["stop_tokens"].values() if notes.is_file() else ()
    paths = sorted(folder.glob("chat_template*.jinja"))
    for path, family in zip(paths, with_each(folder, [path.name for path in paths]), strict=True):
        yield Subject(folder.name, path.stem, family, frozenset(named or family.stop_ids))


def with_each(folder: Path, templates: Sequence[str]) -> list[Family]:
    """Return a model folder's family with each of some templates; its tokenizer is loaded once."""
    if not templates:
        return []
    loaded, read = Family.load(folder, template=templates[0]), Folder.read(folder)
    return [loaded.with_templates(read.chosen(template)) for template in templates]


def strangers(folder: Path, root: Path) -> Iterator[Subject]:
    """Yield the templates that come without a vocabulary, each with a stand-in that has its markers.

    `root` has the model folder whose tokenizer is the stand-in.
    """
    meta = json.loads((folder / "meta.json").read_text())
    base = root / meta["standin_base"].split("/")[0]
    families = with_each(base, [str(folder / entry["file"]) for entry in meta["templates"]])
    for entry, family in zip(meta["templates"], families, strict=True):
        named = {"bos_token": entry["bos"] or "", "eos_token": entry["eos"] or ""}
        extended = attrs.evolve(
            family.with_special_tokens([*entry["special_tokens"], *filter(None, named.values())]),
            special_tokens={**family.special_tokens, **named},
        )
        stops = map(extended.tokenizer.token_to_id, entry["stop"])
        known = frozenset(index for index in stops if index is not None)
        yield Subject(folder.name, Path(entry["file"]).stem, extended, known)


def cells(
    subject: Subject, renderings: Sequence[Mapping[str, Any]] = RENDERINGS, *, timed: bool = True
) -> Iterator[Cell]:
    """Yield a cell for each shape and rendering. Where nothing is timed, each question is rendered once."""
    for rendering in renderings:
        yield from Judge.of(subject, rendering, timed=timed).cells()


@attrs.define
class Judge:
    """Judges the cells of one template with one rendering; its profile grows as cases come."""

    subject: Subject
    rendering: Mapping[str, Any]
    bound: Bound | RememberedAnswers
    profile: Profile | None
    """None where the template does not render so at all."""
    end: tuple[int, ...] = ()
    """What a model samples after a plain answer."""
    probed: int = 0
    """How many renders the profile took."""

    @classmethod
    def of(cls, subject: Subject, rendering: Mapping[str, Any], *, timed: bool = True) -> Judge:
        asked = subject.family.tokenize_fn(**rendering)
        bound = asked if timed else RememberedAnswers(asked)
        counting = CountingQuestions(bound)
        try:
            profile = answer(probe_questions(sorted(subject.stops)), counting)
        except TemplateRefused:
            return cls(subject, rendering, bound, None)
        plain = cases(as_object=True, content="")[0]
        end = ending(subject.family, plain, subject.stops, rendering)
        return cls(subject, rendering, bound, profile, end, counting.asked)

    def cells(self) -> Iterator[Cell]:
        """Judge every shape."""
        return map(self.cell, SHAPES)

    def cell(self, shape: str) -> Cell:
        """Judge the first way of writing the conversation that the template takes and shows."""
        words = ["tools" if self.rendering["tools"] else "no tools"]
        words += [f"{name}={value}" for name, value in self.rendering.items() if name != "tools"]
        label = (self.subject.name, self.subject.template, ", ".join(words), shape)
        for content, as_object in product(("", None, SPOKEN), (True, False)):
            case = cases(as_object=as_object, content=content)[SHAPES.index(shape)]
            try:
                truth = tail(self.subject.family, case, self.subject.stops, self.rendering, self.end)
                lost = loses(self.subject.family, case, self.rendering)
            except TemplateRefused:
                continue
            if truth is not None and self.profile is not None:
                return self._judged(label, case, truth, self.profile)
            if lost and self.profile is not None and self._stitches(case, self.profile):
                return Cell(*label, WRONG)
        return Cell(*label, UNRENDERABLE)

    def _stitches(self, case: Case, profile: Profile) -> bool:
        """Tell whether the kernel answers, with or without a profile; where a message is lost it may not."""
        step = self._step(case, Tail((max(self.subject.stops),), in_call=False))
        self.profile = self._learnt(step, case, profile)
        askings = [
            stitch_questions([step], case.prompt, profile.suffix, profile=one) for one in (None, self.profile)
        ]
        return any(isinstance(answer(asking, self.bound), Stitched) for asking in askings)

    def _judged(self, label: tuple[str, str, str, str], case: Case, truth: Tail, profile: Profile) -> Cell:
        step = self._step(case, truth)
        self.profile = profile = self._learnt(step, case, profile)
        verdict, reason, renders = self._verdict(step, case, truth, profile)
        bare, _, bare_renders = self._verdict(step, case, truth, None, profile.suffix)
        difference = subtracted(case, self.bound)
        right = difference is not None and tuple(difference) == truth.ids
        other = EXACT if right else REFUSED if difference is None else WRONG
        bridges, profiled = (self._bridged(case, step, truth, one) for one in (None, profile))
        return Cell(*label, verdict, reason, renders, bare, bare_renders, other, bridges, profiled)

    def _bridged(self, case: Case, step: Step, truth: Tail, profile: Profile | None) -> tuple[Bridged, ...]:
        ids = step.ids.tolist()
        right = [*ids, *self._rest(truth, step)]
        suffix = self.profile.suffix if self.profile is not None else ()
        stops = sorted(self.subject.stops)
        return bridged(case, ids, right, self.bound, stops=stops, suffix=suffix, profile=profile)

    def _step(self, case: Case, truth: Tail) -> Step:
        """Return the step that was sampled; it ended as the template ends it where that is with a stop."""
        stop = truth.ids[0] if truth.ids[0] in self.subject.stops else max(self.subject.stops)
        end = self.end if self.end and truth.ids[: len(self.end)] == self.end else (stop,)
        return Step(
            prompt=case.history,
            completion=[case.turn],
            prompt_ids=self.subject.family.encode(written(self.subject.family, case.history, self.rendering)),
            completion_ids=[*SAMPLED, *([] if case.truncated else end)],
            truncated=case.truncated,
        )

    def _rest(self, truth: Tail, step: Step) -> tuple[int, ...]:
        """Return what follows the sampled ids: all after the stop, also if white space stands before that."""
        end = step.completion_ids.tolist()[len(SAMPLED) :]
        place = truth.ids.index(end[-1]) if end and end[-1] in truth.ids else 0
        blank = not self.subject.family.decode(truth.ids[:place]).strip()
        return truth.ids[place + 1 if place and blank else len(end) :]

    def _learnt(self, step: Step, case: Case, profile: Profile) -> Profile:
        """Return the profile with this case certified too."""
        located = locate([step], case.prompt)
        named = None if isinstance(located, Refusal) else case_of(located.turn, located.environment)
        if named is None or profile.case(*named):
            return profile
        counting = CountingQuestions(self.bound)
        found = answer(certify_questions(*named, profile.suffix, profile.stop_ids), counting)
        self.probed += counting.asked
        return profile.then(found)

    def _verdict(
        self, step: Step, case: Case, truth: Tail, profile: Profile | None, suffix: tuple[int, ...] = ()
    ) -> tuple[str, str, int]:
        """Return verdict, reason of a refusal, and number of renders."""
        counting = CountingQuestions(self.bound)
        suffix = suffix if profile is None else profile.suffix
        found = answer(stitch_questions([step], case.prompt, suffix, profile=profile), counting)
        if isinstance(found, Refusal) and found.reason is Reason.ODD_STOP:
            policy = Policy(odd_stop=OddStop.REPLACE)
            again = answer(
                stitch_questions([step], case.prompt, suffix, policy=policy, profile=profile), self.bound
            )
            kept = step.ids.tolist()[:-1]
            right = isinstance(again, Stitched) and again.ids.tolist() == [*kept, *truth.ids]
            detail = "ODD_STOP: exact where the policy replaces the stop" if right else "ODD_STOP"
            return (REFUSED if right or isinstance(again, Refusal) else WRONG), detail, counting.asked
        if isinstance(found, Refusal):
            return REFUSED, f"{found.reason.name}: {found.detail}", counting.asked
        right = found.ids.tolist() == [*step.ids, *self._rest(truth, step)]
        return (EXACT if right else WRONG), "", counting.asked
