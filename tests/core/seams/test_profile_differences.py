"""What two profiles say differently is named."""

from __future__ import annotations

import attrs

from tests.core import example
from tito_core import answer
from tito_core.refusal import Reason
from tito_core.seams.case import TurnKind
from tito_core.seams.certify import certify_questions
from tito_core.seams.probe import probe_questions
from tito_core.seams.profile import Mode, Profile
from tito_core.seams.profile_differences import differences

PLAIN = TurnKind(before="user", reasoning=False, calls=0, content="text")


def known(*shapes: tuple[str, ...]) -> Profile:
    profile = answer(probe_questions([example.CLOSE]), example.tokenize)
    cases = [answer(certify_questions(PLAIN, shape, profile.suffix), example.tokenize) for shape in shapes]
    return profile.then(*cases)


def test_equal_profiles_have_no_differences() -> None:
    assert differences(known(("user",)), known(("user",))) == ()


def test_a_case_that_only_one_profile_has_is_no_difference() -> None:
    assert differences(known(("user",)), known(("system",))) == ()
    assert differences(known(), known(("system",))) == ()


def test_everything_else_is_named() -> None:
    one = known(("user",))
    facts = attrs.evolve(one.facts, trims=None, opening=(1, 2))
    case = attrs.evolve(one.cases[0], mode=Mode.REFUSED, recipe=None, reason=Reason.UNPROVEN_TAIL)
    other = attrs.evolve(one, stop_ids=(7,), facts=facts, cases=(case,))
    assert [assistant.split(":")[0] for assistant in differences(one, other)] == [
        "stop_ids",
        "trims",
        "opening",
        *["plain (text) before user"] * 2,
    ]
    assert f"stop_ids: [{example.CLOSE}] and [7]" in differences(one, other)


def test_a_case_is_named_by_its_kind_and_shape_and_its_recipes_compared() -> None:
    one = known(("system", "user"))
    case = one.cases[0]
    assert case.recipe is not None
    other = one.then(attrs.evolve(case, recipe=attrs.evolve(case.recipe, close=(9,), mark=(8,), speaks=())))
    assert differences(one, other) == (
        f"plain (text) before system, user: close: {(example.CLOSE,)} and (9,)",
        f"plain (text) before system, user: speaks: {(example.OPEN, example.ROLES['assistant'])} and ()",
    )


def test_a_case_without_a_recipe_has_none_to_compare() -> None:
    one = known(("user",))
    other = one.then(attrs.evolve(one.cases[0], recipe=None))
    assert differences(one, other) == differences(other, one) == ()
