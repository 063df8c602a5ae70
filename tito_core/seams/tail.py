"""The proven tail: what the template writes after a turn's own text, up to where the model speaks next.

A profile that knows the case recognizes the tail in one answer, and asks once more to see that it depends on
nothing else. Otherwise, and whenever an answer is not what the profile predicts, everything is proven anew.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from ..checks import short_repr
from ..errors import InputError
from ..questions import Questions, in_parts, relayed
from ..refusal import Refusal
from .placeholders import placed_questions
from .prove import Proof, prove_questions, whole_history_questions, with_sampled_close
from .turn import Environment, SampledTurn


class ProfileLike(Protocol):
    """The part of a `Profile` that the kernel uses. It does not import the class: most callers have none."""

    @property
    def key(self) -> str | None:
        """What the profile was rendered with; with a key it serves prompts of that key only."""

    @property
    def suffix(self) -> tuple[int, ...]:
        """The ids that close an assistant turn."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end a turn."""

    @property
    def words(self) -> tuple[str, ...]:
        """Words that the template looks for in messages."""

    def known_tail_questions(self, turn: SampledTurn, environment: Environment) -> Questions[Proof | None]:
        """Ask for the tail of a known case; return None if it must be proven."""


def require_profile(profile: object) -> None:
    """Raise `InputError` unless `profile` is one, or None."""
    # By hand: `isinstance` with a protocol takes 14 us, a third of a stitch with a profile.
    lacks = not all(
        hasattr(profile, name) for name in ("key", "suffix", "stop_ids", "words", "known_tail_questions")
    )
    if profile is not None and (lacks or isinstance(profile, type)):
        raise InputError(f"profile is {short_repr(profile)}: give a Profile, such as probe returns, or None")


def tail_questions(
    turn: SampledTurn,
    environment: Environment,
    suffix: tuple[int, ...],
    profile: ProfileLike | None = None,
    *,
    stops: tuple[int, ...] = (),
    words: tuple[str, ...] = (),
) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn`: as a profile that knows the case does, else until it is proven.

    `stops` and `words` are what is known of the template, beside what the turn and the profile have.
    """
    if profile is not None:
        stops, words = (*stops, *profile.stop_ids), (*words, *profile.words)
    turn = attrs.evolve(turn, suffix=suffix, stops=(*turn.stops, *stops), words=(*turn.words, *words))
    known = None if profile is None else (yield from profile.known_tail_questions(turn, environment))
    if known is None:
        proof = yield from prove_questions(turn, environment)
    else:
        asking = with_sampled_close(turn, known)
        proof = yield from relayed(asking, in_parts) if known.parts else asking
    # Community templates for Qwen count failed results over all of the conversation.
    if profile is not None and turn.shown_by_history and turn.said and isinstance(proof, Refusal):
        proof = yield from whole_history_questions(turn, environment)
    if turn.placeholders is None or isinstance(proof, Refusal):
        return proof
    return (yield from placed_questions(proof, turn.media, turn.placeholders))
