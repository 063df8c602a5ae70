"""Ask the kernel for a next prompt in every way, and compare its answers with the right ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs

from benchmarks.templates.sampled import Sampled
from benchmarks.templates.shapes import Conversation, End
from benchmarks.templates.verdict import DROPPED, EXACT, REFUSED, UNCLEAR, UNCLOSED, WAYS, WRONG, Answer
from tito_core import (
    Bridge,
    Extension,
    OddStop,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    answer,
    locate,
    stitch_questions,
)
from tito_core.seams.case import case_of
from tito_core.seams.certify import certify_questions
from tito_core.seams.profile import Profile
from tito_io.families.family import Bound

KEPT = "exact where the policy keeps the sampled stop"
Ask = Callable[[Policy], Stitched | Extension | Refusal]


@attrs.define
class Kernel:
    """Asks about one rendering; its profile grows as conversations come.

    Attributes:
        bound: The rendering.
        profile: What is known of it.
    """

    bound: Bound
    profile: Profile

    def answers(self, conversation: Conversation, sampled: Sampled) -> Iterator[Answer]:
        """Yield the judged answer of each way to ask."""
        for way, ask in self._asks(conversation, sampled.step):
            try:
                yield Answer(way, *verdict(ask, conversation, sampled))
            except Exception as error:  # noqa: BLE001  # whatever is raised, the kernel should have refused
                yield Answer(way, WRONG, f"raised {type(error).__name__}: {error!s:.200}")

    def _asks(self, conversation: Conversation, step: Step) -> Iterator[tuple[str, Ask]]:
        turn = {"turn": conversation.turn}
        yield WAYS[0], partial(self._stitched, step, conversation, learns=False)
        yield WAYS[1], partial(self._stitched, step, conversation, learns=True)
        yield WAYS[2], partial(self._extended, step, conversation, {})
        yield WAYS[3], partial(self._extended, step, conversation, turn)
        yield WAYS[4], partial(self._extended, step, conversation, {**turn, "history": conversation.history})

    def _stitched(
        self, step: Step, conversation: Conversation, policy: Policy, *, learns: bool
    ) -> Stitched | Refusal:
        profile = self._learnt(step, conversation) if learns else None
        asking = stitch_questions(
            [step], conversation.prompt(), self.profile.suffix, profile=profile, policy=policy
        )
        return answer(asking, self.bound)

    def _extended(
        self, step: Step, conversation: Conversation, known: Any, policy: Policy
    ) -> Extension | Refusal:
        stops, suffix = self.profile.stop_ids, self.profile.suffix
        bridge = Bridge(self.bound, stops, suffix=suffix, spans=False, policy=policy)
        return bridge.extend(step.ids.tolist(), conversation.environment, **known)

    def _learnt(self, step: Step, conversation: Conversation) -> Profile:
        """Return the profile with this conversation's case certified."""
        located = locate([step], conversation.prompt())
        named = None if isinstance(located, Refusal) else case_of(located.turn, located.environment)
        if named is not None and not self.profile.case(*named):
            asking = certify_questions(*named, self.profile.suffix, self.profile.stop_ids)
            self.profile = self.profile.then(answer(asking, self.bound))
        return self.profile


def verdict(ask: Ask, conversation: Conversation, sampled: Sampled) -> tuple[str, str]:
    """Ask, and return the verdict on the answer with its reason.

    A turn that ends with an odd stop must be refused by the strict policy. Where the template ends no turn
    with a stop, every stop is odd; then the policy that keeps it is asked, too.
    """
    policy = Policy(odd_stop=conversation.odd_stop)
    found = ask(policy)
    odd = isinstance(found, Refusal) and found.reason is Reason.ODD_STOP
    strict = conversation.odd_stop is OddStop.REFUSE
    if strict and conversation.end is End.ODD:
        return (EXACT, "") if odd else compared(found, sampled, [], "an odd stop")
    if strict and conversation.end is End.STOP and sampled.unclosed:
        policy = Policy(odd_stop=OddStop.KEEP)
        kept, reason = compared(ask(policy), sampled, sampled.right(policy))
        return (
            (UNCLOSED, "exact where the policy keeps the sampled stop")
            if odd and kept == EXACT
            else (kept, reason)
        )
    return compared(found, sampled, sampled.right(policy))


def compared(found: Any, sampled: Sampled, right: list[list[int]], never: str = "") -> tuple[str, str]:
    """Return the verdict on an answer, and its reason. `never` is what must be refused."""
    if isinstance(found, Refusal):
        return refused(found, sampled)
    if sampled.lost is not None:
        return WRONG, f"answered, and the template drops a new {sampled.lost} message"
    if never:
        return WRONG, f"answered after {never}"
    if not right:
        return UNCLEAR, f"answered: {sampled.unclear}"
    return (EXACT, "") if found.ids.tolist() in right else (WRONG, "other ids")


def refused(found: Refusal, sampled: Sampled) -> tuple[str, str]:
    """Return the verdict on a refusal, and its reason: the template's own where it leaves nothing else."""
    if sampled.lost is not None:
        return DROPPED, f"the template drops a new {sampled.lost} message"
    if sampled.unclear:
        return (UNCLOSED if sampled.unclosed else DROPPED), sampled.unclear
    return REFUSED, f"{found.reason.name}: {found.detail}"
