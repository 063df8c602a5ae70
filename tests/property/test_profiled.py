"""What is known of a template saves questions and changes no answer.

Every law about what follows a turn holds with a profile as it does without: the ids are those of the tail of
the real conversation. Where the profile's case is shown, one question is asked, and where the case depends on
nothing before the turn, it holds no more messages than are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.strategies import ANY_WORLD, TIDY_WORLD, World, tidy_worlds, tries
from tests.toys import TOYS, Message, Toy
from tito_core import Policy, Refusal, Stitched, answer, locate, stitch_questions
from tito_core.data import from_data, to_data
from tito_core.recheck import recheck_questions
from tito_core.seams.case import TurnKind, case_of
from tito_core.seams.certify import certify_questions
from tito_core.seams.profile import Case, Mode, Profile

STRICT = Policy()
PAST = 5
"""The most messages of a short history and the turn itself."""
STEADY_FAMILIES = tuple(toy for toy in TOYS if not toy.fickle)
STEADY_WORLD = tidy_worlds(STEADY_FAMILIES)


class Counted:
    """A toy that counts what it is asked; with `cuts` it tokenizes no more than is asked for."""

    def __init__(self, toy: Toy, *, cuts: bool) -> None:
        self.toy = toy
        self.asked: list[Sequence[Message]] = []
        if cuts:
            self.since = self._since

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        self.asked.append(messages)
        return self.toy(messages, add_generation_prompt=add_generation_prompt)

    def _since(self, messages: Sequence[Message], text: str, *, add_generation_prompt: bool) -> list[int]:
        self.asked.append(messages)
        whole = self.toy.page(messages, speak=add_generation_prompt).text
        return self.toy.tokenizer.encode(whole[whole.index(text) :] if whole.count(text) == 1 else whole)


@cache
def certified(toy: Toy, kind: TurnKind, shape: tuple[str, ...], *, cuts: bool) -> Case:
    return answer(certify_questions(kind, shape, toy.suffix, toy.stop_ids), Counted(toy, cuts=cuts))


def known(world: World, *, cuts: bool) -> Profile:
    """Return a profile with the one case that the world needs, through its plain data."""
    located = locate(world.steps, world.prompt, policy=STRICT, key=world.key)
    named = None if isinstance(located, Refusal) else case_of(located.turn, located.environment)
    cases = () if named is None else (certified(world.toy, *named, cuts=cuts),)
    profile = Profile(suffix=world.suffix, stop_ids=world.toy.stop_ids, cases=cases)
    return from_data(to_data(profile), Profile)


def check(world: World, *, cuts: bool) -> None:
    """Compare the answer with every right one, and count the questions."""
    profile, counted = known(world, cuts=cuts), Counted(world.toy, cuts=cuts)
    asking = stitch_questions(world.steps, world.prompt, world.suffix, key=world.key, profile=profile)
    found = answer(asking, counted)
    right = oracle.answers(world.toy, world.steps, world.prompt, world.suffix, STRICT, world.key)
    if isinstance(found, Stitched) and right is not None:
        assert found.ids.tolist() in [one.ids for one in right]


@given(ANY_WORLD, st.booleans())
@tries(6)
def test_a_profile_makes_nothing_untrue(world: World, cuts: bool) -> None:
    check(world, cuts=cuts)


@given(TIDY_WORLD, st.booleans())
@tries(6)
def test_a_turn_that_ended_as_it_should_is_followed_by_its_tail(world: World, cuts: bool) -> None:
    check(world, cuts=cuts)


@given(STEADY_WORLD)
@tries(4)
def test_what_is_stitched_without_a_profile_is_stitched_with_one(world: World) -> None:
    bare = answer(stitch_questions(world.steps, world.prompt, world.suffix), world.toy)
    profile = known(world, cuts=True)
    found = answer(stitch_questions(world.steps, world.prompt, world.suffix, profile=profile), world.toy)
    if isinstance(bare, Stitched):
        assert isinstance(found, Stitched)
        assert found.ids == bare.ids
        assert (found.ledger, found.inserted_close) == (bare.ledger, bare.inserted_close)


@given(STEADY_WORLD)
@tries(4)
def test_a_free_case_that_is_recognized_costs_one_question_about_what_is_new(world: World) -> None:
    profile, counted = known(world, cuts=True), Counted(world.toy, cuts=True)
    found = answer(stitch_questions(world.steps, world.prompt, world.suffix, profile=profile), counted)
    if isinstance(found, Stitched) and len(counted.asked) == 1 and profile.cases[0].mode is Mode.FREE:
        assert len(counted.asked[0]) <= len(found.environment) + PAST


@given(STEADY_WORLD)
@tries(4)
def test_the_whole_conversation_is_compared_when_asked_for(world: World) -> None:
    found = answer(stitch_questions(world.steps, world.prompt, world.suffix), world.toy)
    if isinstance(found, Stitched):
        assert answer(recheck_questions(found, world.prompt), Counted(world.toy, cuts=True)) is not False
        wrong = attrs.evolve(found, bridge=(*found.bridge[:-1], found.bridge[-1] + 1))
        assert answer(recheck_questions(wrong, world.prompt), Counted(world.toy, cuts=True)) is not True


def test_cases_of_each_mode_are_met() -> None:
    """The other tests here would hold of a kernel that refused every case."""
    modes = {name: set[Mode]() for name in ("free", "dear")}
    for toy in STEADY_FAMILIES:
        found = {case.mode for case in cases_of(toy)}
        modes["free" if found == {Mode.FREE} else "dear"] |= found
    assert (len(modes["free"]), modes["dear"]) == (1, set(Mode))


def cases_of(toy: Toy) -> list[Case]:
    """Return a few usual cases."""
    usual = [
        (TurnKind(before="user", reasoning=False, calls=0, content="text"), ("user",)),
        (TurnKind(before="user", reasoning=True, calls=1, content="text"), ("tool",)),
        (TurnKind(before="tool", reasoning=False, calls=1, content="empty"), ("tool",)),
    ]
    return [certified(toy, kind, shape, cuts=True) for kind, shape in usual]
