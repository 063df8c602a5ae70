"""A profile that grows: a case is certified when a conversation first has it, and known from then on."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import attrs

from ..questions import Questions, relayed
from .case import case_of
from .certify import certify_questions
from .profile import Profile
from .prove import Proof
from .turn import Environment, SampledTurn

T = TypeVar("T")


def for_certificate(asking: Questions[T]) -> Questions[T]:
    """Ask what `asking` asks, each question as one for a certificate (see `Question.certifies`)."""
    return relayed(asking, partial(attrs.evolve, certifies=True))


@attrs.define
class GrowingProfile:
    """Gives what its profile knows, after certifying the case that is asked for.

    A certificate takes some twenty short renders. A conversation has few cases, so that this is less than to
    certify all before the first turn. It is the one value of the kernel that changes: keep one for each
    rendering, and save `profile` when it has grown.

    Attributes:
        profile: What is known so far.

    >>> from tito_core import Bridge
    >>> from tito_core.seams.probe import probe
    >>> def tokenize(messages, *, add_generation_prompt):      # 1 opens a turn, 2 closes it
    ...     ids = [i for m in messages for i in (1, len(m["role"]), *str(m.get("content")).encode(), 2)]
    ...     return ids + [1, len("assistant")] * add_generation_prompt
    >>> growing = GrowingProfile(probe(tokenize, [2]))
    >>> bridge = Bridge(tokenize, [2], profile=growing)
    >>> hello, answer = {"role": "user", "content": "A"}, {"role": "assistant", "content": "x"}
    >>> extension = bridge.extend([1, 4, 65, 2, 1, 9, 7, 2], [hello], turn=answer, history=[hello])
    >>> len(growing.profile.cases)
    1
    """

    profile: Profile

    @property
    def key(self) -> str | None:
        """The key with which the profile was rendered."""
        return self.profile.key

    @property
    def suffix(self) -> tuple[int, ...]:
        """The ids that close an assistant turn."""
        return self.profile.suffix

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end a turn."""
        return self.profile.stop_ids

    @property
    def words(self) -> tuple[str, ...]:
        """Words that the template looks for in messages."""
        return self.profile.words

    def known_tail_questions(self, turn: SampledTurn, environment: Environment) -> Questions[Proof | None]:
        """Ask for the tail after `turn`, and before that for a certificate of its case if it has none."""
        name = case_of(turn, environment)
        if name is not None and self.profile.case(*name) is None:
            asking = self.profile.asked(certify_questions(*name, self.suffix, self.stop_ids))
            self.profile = self.profile.then((yield from for_certificate(asking)))
        return (yield from self.profile.known_tail_questions(turn, environment))
