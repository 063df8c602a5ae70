"""The proven tail: what the template writes after a turn's own text, up to where the model speaks next.

If a profile knows the case, one question is asked and its answer recognized. Otherwise, and whenever the
answer is not what the profile predicts, everything is proven anew.
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
    """What the template writes after a turn's own text.

    Attributes:
        ids: The close, the environment and the generation prompt.
        generation_prompt: How many of the ids, at the end, are the generation prompt.
    """

    ids: tuple[int, ...]
    generation_prompt: int


def tail_questions(
    turn: SampledTurn, environment: Environment, suffix: tuple[int, ...], profile: Profile | None = None
) -> Questions[ProvenTail | Refusal]:
    """Ask for the tail after `turn`: once if the profile knows the case, else until it is proven."""
    for reading in readings(environment):
        name = None if profile is None else named_case(turn, reading)
        case = None if profile is None or name is None else profile.case(*name)
        recognized = yield from _recognized(turn, reading, case)
        if recognized is not None:
            return recognized
        if case is None or case.reason not in RETRIED:
            break
    proof = yield from prove_questions(attrs.evolve(turn, suffix=suffix), environment)
    return ProvenTail(proof.ids, proof.generation_prompt) if isinstance(proof, Proof) else proof


def named_case(turn: SampledTurn, environment: Environment) -> tuple[TurnKind, tuple[str, ...]] | None:
    """Return the kind of a turn and the shape of what follows it, None if either has no name."""
    kind, shape = TurnKind.of(turn.message, turn.after), shape_of(environment, turn.message)
    return None if kind is None or shape is None else (kind, shape)


def _recognized(
    turn: SampledTurn, environment: Environment, case: Case | None
) -> Questions[ProvenTail | None]:
    """Ask once; return None if the answer is not what the case predicts."""
    recipe = case.recipe if case is not None else None
    if case is None or recipe is None:
        return None
    short = akin_histories(turn.after, turn.history)
    if not 0 <= recipe.past < len(short):
        return None
    past = turn.past if case.mode is Mode.HISTORY else short[recipe.past]
    form = TurnForm(turn.message, recipe.place, recipe.as_object)
    # A message that says the stand-in word makes the cut ambiguous: templates repeat earlier texts, too.
    whole = not recipe.cut or says((*past, *environment), SHORT)
    messages = (*past, form.write(SHORT), *environment)
    try:
        ids = yield from ask(messages, since=None if whole else SHORT)
    except TemplateRefused:
        return None
    tail = recognize(recipe, ids)
    return None if tail is None else ProvenTail(tail, len(recipe.speaks))


def recognize(recipe: Recipe, ids: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the tail in an answer, None if it is not what the recipe predicts.

    >>> recipe = Recipe(place=None, as_object=False, past=0, mark=(50,), rest=(), close=(2,), speaks=(1, 9),
    ...                 cut=False)
    >>> recognize(recipe, (1, 8, 50, 2, 1, 7, 65, 2, 1, 9))
    (2, 1, 7, 65, 2, 1, 9)
    >>> recognize(recipe, (1, 8, 50, 50, 2, 1, 9)) is None
    True
    """
    rest = after(recipe.mark, ids)
    begin = -1 if rest is None else _close_begins(recipe, rest)
    if rest is None or begin < 0:
        return None
    tail = rest[begin:]
    end = len(tail) - len(recipe.speaks)
    whole = end >= len(recipe.close) and tail[: len(recipe.close)] == recipe.close
    return tail if whole and tail[end:] == recipe.speaks else None


def _close_begins(recipe: Recipe, rest: tuple[int, ...]) -> int:
    """Return the index of the close in what follows the text, -1 if it does not occur."""
    if recipe.rest is not None:
        return len(recipe.rest) if rest[: len(recipe.rest)] == recipe.rest else -1
    size = len(recipe.close)
    return next((i for i in range(len(rest) - size + 1) if rest[i : i + size] == recipe.close), -1)
