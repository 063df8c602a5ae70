"""The seam in readable form: what the template writes between a sampled turn and the next one, in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tito_core import Profile, TemplateRefused
from tito_core.seams.case import TurnKind
from tito_core.seams.profile import Case
from tito_core.seams.sample import sample_environment, sample_turn
from tito_core.seams.seam import SHORT, common_prefix
from tito_core.seams.stand_in import TurnForm, akin_histories
from tito_core.seams.tail import recognize
from tito_io.families.family import Family

from .budget import LintBudget
from .example_conversation import SYSTEM, USER
from .report import Drawn, SeamPart, tokens

Plain = dict[str, Any]
WORDS = ("Lisbon", "Quite 40 of them")
"""Texts without a common beginning or end; what differs between two bridges is the text."""


def seams(family: Family, profile: Profile, meter: LintBudget) -> tuple[Drawn, ...]:
    """Return the seam before each role that may follow a turn."""
    found = []
    for role in ("user", "tool", "system"):
        drawn = next(_drawn(family, profile, meter, role), None)
        if drawn is not None:
            found.append(drawn)
    return tuple(found)


def _drawn(family: Family, profile: Profile, meter: LintBudget, role: str) -> Iterator[Drawn]:
    """Yield the seam from each certified case that shows it."""
    for content in ("text", "empty"):
        kind = TurnKind(before="user", reasoning=False, calls=int(role == "tool"), content=content)
        case = profile.case(kind, (role,))
        pair = bridges(case, meter) if case is not None else None
        if pair is not None and case is not None and case.recipe is not None:
            yield Drawn(role=role, parts=_parts(family, profile, pair, len(case.recipe.speaks)))


def bridges(case: Case, meter: LintBudget) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return what follows a turn of a case, asked with two texts; None where it is refused."""
    recipe = case.recipe
    if recipe is None:
        return None
    history = akin_histories(case.kind.before, (SYSTEM, USER))[recipe.past]
    turn = sample_turn(case.kind, ["find"] * case.kind.calls)
    form = TurnForm(turn, recipe.place, recipe.as_object)
    found = []
    for words in WORDS:
        (message,) = sample_environment(case.shape, turn, 1, words)
        asked = (*history, form.write(SHORT), {**message, "content": words})
        try:
            ids = meter.since(asked, SHORT, add_generation_prompt=True) if recipe.cut else None
            whole = ids if ids is not None else meter(asked, add_generation_prompt=True)
        except TemplateRefused:
            return None
        found.append(recognize(recipe, tuple(whole)))
    one, two = found
    return None if one is None or two is None else (one, two)


def _parts(
    family: Family, profile: Profile, pair: tuple[tuple[int, ...], tuple[int, ...]], speaks: int
) -> tuple[SeamPart, ...]:
    one, two = pair
    size = len(profile.suffix) if one[: len(profile.suffix)] == profile.suffix else 0
    opened = common_prefix(one, two)
    ended = len(one) - common_prefix(one[::-1], two[::-1], min(len(one), len(two)) - opened)
    spoken = max(len(one) - speaks, ended)
    places = (
        ("close", 0, size),
        ("opener", min(size, opened), opened),
        ("text", opened, ended),
        ("its close", ended, spoken),
        ("generation prompt", spoken, len(one)),
    )
    named = ((name, one[begin:end]) for name, begin, end in places)
    return tuple(SeamPart(name, tokens(family, ids)) for name, ids in named if ids)
