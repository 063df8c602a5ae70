"""What the template writes between a sampled turn and the place where the model speaks next.

Where a profile knows the case, one question is asked and the answer recognized; else, and wherever the
answer is not what the profile foretells, everything is proven anew.
"""

from __future__ import annotations

import attrs

from ..errors import TemplateRefused
from ..normalization.clean import readings, says
from ..questions import Questions, ask
from ..refusal import Refusal
from .case import TurnKind, shape_of
from .profile import Case, Mode, Profile, Recipe
from .prove import RETRIED, Environment, Proof, SampledTurn, prove_questions
from .seam import SHORT, after
from .stand_in import TurnForm, akin_histories


@attrs.frozen
class ProvenTail:
    """What the template writes after a turn's own text, proven."""

    ids: tuple[int, ...]
    """The close, the environment and the generation prompt."""
    generation_prompt: int
    """How many of the ids, at the end, are the generation prompt."""


def tail_questions(
    turn: SampledTurn, environment: Environment, suffix: tuple[int, ...], profile: Profile | None = None
) -> Questions[ProvenTail | Refusal]:
    """Ask for the bridge after `turn`: once where the profile knows how, else until it is proven."""
    for reading in readings(environment):
        case = _known(profile, turn, reading)
        known = yield from _recognized(turn, reading, case)
        if known is not None:
            return known
        if case is None or case.reason not in RETRIED:
            break
    proof = yield from prove_questions(attrs.evolve(turn, suffix=suffix), environment)
    return ProvenTail(proof.bridge, proof.generation_prompt) if isinstance(proof, Proof) else proof


def named_case(turn: SampledTurn, environment: Environment) -> tuple[TurnKind, tuple[str, ...]] | None:
    """Return the kind of a turn and the shape of what follows it, None where they have no name."""
    kind, shape = TurnKind.of(turn.message, turn.after), shape_of(environment, turn.message)
    return None if kind is None or shape is None else (kind, shape)


def _known(profile: Profile | None, turn: SampledTurn, environment: Environment) -> Case | None:
    """Return the profile's case of a turn and what follows it, None where it has none."""
    named = None if profile is None else named_case(turn, environment)
    return None if profile is None or named is None else profile.case(*named)


def _recognized(
    turn: SampledTurn, environment: Environment, case: Case | None
) -> Questions[ProvenTail | None]:
    """Ask once; None where the answer is not what the case foretells."""
    recipe = case.recipe if case is not None else None
    if case is None or recipe is None:
        return None
    short = akin_histories(turn.after, turn.history)
    if not 0 <= recipe.past < len(short):
        return None
    past = turn.past if case.mode is Mode.HISTORY else short[recipe.past]
    form = TurnForm(turn.message, recipe.place, recipe.as_object)
    whole = not recipe.cut or says((*past, *environment), SHORT)  # templates write earlier texts later, too
    asked = (*past, form.write(SHORT), *environment)
    try:
        ids = yield from ask(asked, since=None if whole else SHORT)
    except TemplateRefused:
        return None
    bridge = recognize(recipe, ids)
    return None if bridge is None else ProvenTail(bridge, len(recipe.speaks))


def recognize(recipe: Recipe, ids: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the bridge in an answer, None where it is not what the recipe foretells.

    >>> recipe = Recipe(place=None, as_object=False, past=0, mark=(50,), rest=(), close=(2,), speaks=(1, 9),
    ...                 cut=False)
    >>> recognize(recipe, (1, 8, 50, 2, 1, 7, 65, 2, 1, 9))
    (2, 1, 7, 65, 2, 1, 9)
    >>> recognize(recipe, (1, 8, 50, 50, 2, 1, 9)) is None
    True
    """
    tail = after(recipe.mark, ids)
    if tail is None:
        return None
    begin = _begin(recipe, tail)
    bridge = tail[begin:]
    spoken = len(bridge) - len(recipe.speaks)
    sound = (
        begin >= 0
        and bridge[: len(recipe.close)] == recipe.close
        and bridge[max(spoken, 0) :] == recipe.speaks
    )
    return bridge if sound and spoken >= len(recipe.close) else None


def _begin(recipe: Recipe, tail: tuple[int, ...]) -> int:
    """Return where the close begins in a tail; -1 where it does not."""
    if recipe.rest is not None:
        return len(recipe.rest) if tail[: len(recipe.rest)] == recipe.rest else -1
    size = len(recipe.close)
    return next((i for i in range(len(tail) - size + 1) if tail[i : i + size] == recipe.close), -1)
