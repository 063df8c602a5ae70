"""Check each case: what its certificate says, and what an example conversation shows.

The conversation decides: what a stitch adds must be what one fresh render of the whole has after the turn.
"""

from __future__ import annotations

import attrs

from tito_core import OddStop, Policy, Reason, Refusal, Step, Stitched, answer, stitch_questions
from tito_core.seams.profile import Case, Mode, Profile
from tito_io.cli.errors import visible
from tito_io.families.family import Family

from .example_conversation import ExampleSampler, SampledExample, divergence, example_conversations
from .meter import LintMeter
from .report import Finding, Verdict

CONTRADICTED = "CONTRADICTED"
"""The reason if an example conversation has another tail than the certificate says."""
_REPORT = "an example conversation has another tail than the certificate says: please report this template"
_MESSAGES = {
    "user": "a user message",
    "system": "a system message",
    "assistant": "an assistant message",
    "tool": "a tool result",
}
_ELSEWHERE = "{message} is not written after the turn, so a prompt that continues the turn would lack it"


@attrs.frozen
class CaseChecker:
    """Checks the cases of one template with one rendering.

    Attributes:
        family: The template's family.
        meter: Renders.
        profile: The certified cases.
    """

    family: Family
    meter: LintMeter
    profile: Profile

    def finding(self, case: Case, *, cut: bool) -> Finding:
        """Return what is certified of a case, and what an example conversation of it shows."""
        refused = case.mode is Mode.REFUSED
        finding = Finding(
            shape=case.shape,
            kind=case.kind,
            cut=cut,
            verdict=Verdict.REFUSED if refused else Verdict.EXACT,
            reason="" if case.reason is None else case.reason.name,
            detail=visible(case.detail),
            mode="" if refused else case.mode.name.lower(),
            renders=case.renders,
        )
        example = self._example(case, cut=cut)
        if example is None:
            return finding
        where = divergence(self.family, example)
        finding = attrs.evolve(finding, divergence=where, history_rewritten=where is not None)
        return finding if finding.refused else self._stitched(finding, example)

    def _example(self, case: Case, *, cut: bool) -> SampledExample | None:
        """Return the first example conversation that the template accepts and shows."""
        recipe, as_object = case.recipe, self.profile.facts.arguments != "text"
        spellings: tuple[bool, ...] = (as_object, not as_object)
        if recipe is not None and recipe.place is not None:
            spellings = (recipe.as_object,)
        sampler = ExampleSampler(self.meter, self._ends(), frozenset(self.profile.stop_ids))
        conversations = example_conversations(case.kind, case.shape, spellings)
        examples = (sampler.sample(conversation, cut=cut) for conversation in conversations)
        return next((example for example in examples if example is not None), None)

    def _ends(self) -> frozenset[int]:
        """Return the ids that may end a turn."""
        return frozenset((*self.profile.stop_ids, *self.profile.suffix[:1]))

    def _stitched(self, finding: Finding, example: SampledExample) -> Finding:
        """Stitch the conversation as a rollout would, and compare."""
        result = self._stitch(finding, example, Policy())
        if isinstance(result, Stitched):
            return self._compared(finding, example, result)
        if result.reason is not Reason.ODD_STOP:
            return _refused(finding, result.reason.name, result.detail)
        kept = self._stitch(finding, example, Policy(odd_stop=OddStop.KEEP))
        if isinstance(kept, Refusal):
            return _refused(finding, result.reason.name, result.detail)
        compared = self._compared(finding, example, kept)
        if not example.stopped and not compared.refused:  # the template writes no end that could be odd
            return compared
        remedy = "; exact if the policy keeps or replaces the stop" if example.stopped else ""
        return _refused(finding, result.reason.name, f"{result.detail}{remedy}")

    def _stitch(self, finding: Finding, example: SampledExample, policy: Policy) -> Stitched | Refusal:
        conversation = example.conversation
        step = Step(
            prompt=conversation.history,
            completion=[conversation.turn],
            prompt_ids=example.prompt,
            completion_ids=example.sampled,
            truncated=finding.cut,
        )
        questions = stitch_questions(
            [step], conversation.prompt, self.profile.suffix, policy=policy, profile=self.profile
        )
        return answer(questions, self.meter)

    def _compared(self, finding: Finding, example: SampledExample, stitched: Stitched) -> Finding:
        """Compare with the fresh render."""
        text = self.family.decode(stitched.added).casefold()  # templates may write messages in other letters
        for message in example.conversation.environment:
            if message["content"].casefold() not in text:
                return _refused(
                    finding, Reason.SWALLOWED.name, _ELSEWHERE.format(message=_MESSAGES[message["role"]])
                )
        confirmed = self._confirmed(finding, example, (*example.ending, *stitched.added))
        return finding if confirmed else _refused(finding, CONTRADICTED, _REPORT)

    def _confirmed(self, finding: Finding, example: SampledExample, added: tuple[int, ...]) -> bool:
        """Return whether the fresh render has these ids after the turn."""
        if example.tail is None:  # where the turn ends is unknown: history has other words for it, or none
            return example.rendered[-len(added) :] == added
        place = len(example.tail) - len(added)
        rest, end = example.tail[:place], example.tail[place:]
        # A call that was cut short lacks its rest, up to the first id that may end a turn.
        open_call = finding.cut and bool(finding.kind.calls) and self._ends().isdisjoint(rest)
        return end == added and (not rest or open_call)


def _refused(finding: Finding, reason: str, detail: str) -> Finding:
    return attrs.evolve(finding, verdict=Verdict.REFUSED, reason=reason, detail=visible(detail), mode="")
