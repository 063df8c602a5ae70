"""One case judged: what its certificate says, and what a conversation with words shows of it.

The conversation is the judge of the certificate: what a stitch adds must be what one fresh render of the
whole has after the turn.
"""

from __future__ import annotations

import attrs

from tito_core import OddStop, Policy, Profile, Reason, Refusal, Step, Stitched, answer, stitch_questions
from tito_core.seams.profile import Case, Mode
from tito_io.cli.errors import visible
from tito_io.families.family import Family

from .budget import LintBudget
from .example_conversation import Play, Played, divergence, played, scenes
from .report import Finding, Verdict

CONTRADICTED = "CONTRADICTED"
"""The reason where a conversation with words shows another tail than the certificate. None is known."""
_REPORT = "a conversation has another tail than the certificate says: please report this template"
_ELSEWHERE = "a {role} message is not written after the turn: a prompt that goes on from it would lack it"


@attrs.frozen
class Judge:
    """Judges the cases of one template with one rendering."""

    family: Family
    meter: LintBudget
    profile: Profile

    def finding(self, case: Case, *, cut: bool) -> Finding:
        """Return what is certified of a case, and what a conversation of it shows."""
        found = _of_case(case, cut=cut)
        shown = self._played(case, cut=cut)
        if shown is None:
            return found
        where = divergence(self.family, shown)
        found = attrs.evolve(found, divergence=where, history_rewritten=where is not None)
        return found if found.refused else self._stitched(found, shown)

    def _played(self, case: Case, *, cut: bool) -> Played | None:
        """Return the first conversation of a case that the template takes and shows."""
        play = Play(self.meter, self._ends(), frozenset(self.profile.stop_ids))
        for scene in scenes(case.kind, case.shape, self._spellings(case)):
            found = played(play, scene, cut=cut)
            if found is not None:
                return found
        return None

    def _ends(self) -> frozenset[int]:
        """Return the ids that may end a turn."""
        return frozenset((*self.profile.stop_ids, *self.profile.suffix[:1]))

    def _spellings(self, case: Case) -> tuple[bool, ...]:
        """Return whether arguments are written as objects, the likelier way first."""
        recipe = case.recipe
        if recipe is not None and recipe.place is not None:
            return (recipe.as_object,)
        likely = self.profile.facts.arguments != "text"
        return (likely, not likely)

    def _stitched(self, found: Finding, shown: Played) -> Finding:
        """Stitch the conversation as a rollout would, and compare."""
        made = self._stitch(found, shown, Policy())
        if isinstance(made, Stitched):
            return self._compared(found, shown, made)
        if made.reason is not Reason.ODD_STOP:
            return _refused(found, made.reason.name, made.detail)
        kept = self._stitch(found, shown, Policy(odd_stop=OddStop.KEEP))
        if isinstance(kept, Refusal):
            return _refused(found, made.reason.name, made.detail)
        compared = self._compared(found, shown, kept)
        if not shown.stopped and not compared.refused:  # the template writes no end that could be odd
            return compared
        told = "; exact where the policy keeps or replaces the stop" if shown.stopped else ""
        return _refused(found, made.reason.name, f"{made.detail}{told}")

    def _stitch(self, found: Finding, shown: Played, policy: Policy) -> Stitched | Refusal:
        step = Step(
            prompt=shown.scene.history,
            completion=[shown.scene.turn],
            prompt_ids=shown.prompt,
            completion_ids=shown.sampled,
            truncated=found.cut,
        )
        asking = stitch_questions(
            [step], shown.scene.prompt, self.profile.suffix, policy=policy, profile=self.profile
        )
        return answer(asking, self.meter)

    def _compared(self, found: Finding, shown: Played, made: Stitched) -> Finding:
        """Compare with the fresh render. A cut call lacks its rest, up to the first id that may end it."""
        tail, added = shown.tail or (), (*shown.ending, *made.bridge)
        lost = self._lost(shown, made)
        if lost is not None:
            return _refused(found, Reason.SWALLOWED.name, _ELSEWHERE.format(role=lost))
        rest, end = tail[: len(tail) - len(added)], tail[len(tail) - len(added) :]
        open_call = found.cut and found.kind.calls and self._ends().isdisjoint(rest)
        if end == added and (not rest or open_call):
            return found
        return _refused(found, CONTRADICTED, _REPORT)

    def _lost(self, shown: Played, made: Stitched) -> str | None:
        """Return the role of a new message that is not in what a stitch adds."""
        text = self.family.decode(made.bridge)
        said = (message["role"] for message in shown.scene.environment if message["content"] not in text)
        return next(said, None)


def _of_case(case: Case, *, cut: bool) -> Finding:
    refused = case.mode is Mode.REFUSED
    return Finding(
        shape=case.shape,
        kind=case.kind,
        cut=cut,
        verdict=Verdict.REFUSED if refused else Verdict.EXACT,
        reason="" if case.reason is None else case.reason.name,
        detail=visible(case.detail),
        mode="" if refused else case.mode.name.lower(),
        renders=case.renders,
    )


def _refused(found: Finding, reason: str, detail: str) -> Finding:
    return attrs.evolve(found, verdict=Verdict.REFUSED, reason=reason, detail=visible(detail), mode="")
