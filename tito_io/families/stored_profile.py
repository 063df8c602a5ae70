"""Profiles that are written to their file when they have grown."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from tito_core import Questions
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.profile import Profile
from tito_core.seams.prove import Proof
from tito_core.seams.turn import Environment, SampledTurn


@define
class StoredProfile(GrowingProfile):
    """A `GrowingProfile` that is written to a file when it has grown. `Family.profile` returns it.

    Attributes:
        profile: What is known so far.
        store: Called with the profile when it has a new case.
    """

    store: Callable[[Profile], None] = field(repr=False, eq=False)

    def known_tail_questions(self, turn: SampledTurn, environment: Environment) -> Questions[Proof | None]:
        """Ask for the tail after `turn`, and before that for a certificate of its case if it has none."""
        before = self.profile
        proof = yield from super().known_tail_questions(turn, environment)
        if self.profile is not before:
            self.store(self.profile)
        return proof

    def learn(self, profile: Profile) -> None:
        """Add the cases of a `profile` that grew elsewhere, and write them to the file."""
        self.profile = self.profile.then(*profile.cases)
        self.store(self.profile)
