"""The proven tail: what the template writes after a turn's own text, up to where the model speaks next.

A profile that knows the case asks one question and recognizes the answer. Otherwise, and whenever the answer
is not what the profile predicts, everything is proven anew.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from ..questions import Questions
from ..refusal import Refusal
from .prove import Environment, Proof, SampledTurn, prove_questions


@attrs.frozen
class ProvenTail:
    """What the template writes after a turn's own text.

    Attributes:
        ids: The close, the environment and the generation prompt.
        generation_prompt: How many of the ids, at the end, are the generation prompt.
    """

    ids: tuple[int, ...]
    generation_prompt: int


class ProfileLike(Protocol):
    """What the kernel needs of a `Profile`. It does not import the class: most callers have none."""

    @property
    def key(self) -> str | None:
        """What the profile was rendered with; with a key it serves prompts of that key only."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end a turn."""

    def known_tail_questions(
        self, turn: SampledTurn, environment: Environment
    ) -> Questions[ProvenTail | None]:
        """Ask once for the tail of a known case; return None if it must be proven."""


def tail_questions(
    turn: SampledTurn,
    environment: Environment,
    suffix: tuple[int, ...],
    profile: ProfileLike | None = None,
) -> Questions[ProvenTail | Refusal]:
    """Ask for the tail after `turn`: once if the profile knows the case, else until it is proven."""
    if profile is not None:
        known = yield from profile.known_tail_questions(turn, environment)
        if known is not None:
            return known
    proof = yield from prove_questions(attrs.evolve(turn, suffix=suffix), environment)
    return ProvenTail(proof.ids, proof.generation_prompt) if isinstance(proof, Proof) else proof
