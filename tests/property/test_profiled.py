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
from tests.profiles import tries
from tito_core import Policy, Refusal, Stitched, answer, locate, stitch_questions
from tito_core.data import from_data, to_data
from tito_core.recheck import recheck_questions
from tito_core.seams.case import TurnKind, case_of
from tito_core.seams.certify import certify_questions
from tito_core.seams.profile import Case, Mode, Profile
from tito_core.testing.strategies.stitch_input import ANY_INPUT, TIDY_INPUT, StitchInput, tidy_stitch_inputs
from tito_core.testing.toys import TOYS, Message, Toy
from tito_core.testing.toys.dependent import first_call_name, numbered_hello, thinking_switch

STRICT = Policy()
PAST = 5
"""The most messages of a short history and the turn itself."""
STEADY_FAMILIES = tuple(toy for toy in TOYS if not toy.nondeterministic)
STEADY_WORLD = tidy_stitch_inputs(STEADY_FAMILIES)
ANY_WORLD = st.one_of(STEADY_WORLD, tidy_stitch_inputs((numbered_hello, first_call_name, thinking_switch)))


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
        whole = self.toy.page(messages, add_generation_prompt=add_generation_prompt).text
        return self.toy.tokenizer.encode(whole[whole.index(text) :] if whole.count(text) == 1 else whole)


@cache
def certified(toy: Toy, kind: TurnKind, shape: tuple[str, ...], *, cuts: bool) -> Case:
    return answer(certify_questions(kind, shape, toy.suffix, toy.stop_ids), Counted(toy, cuts=cuts))


def known(stitch_input: StitchInput, *, cuts: bool) -> Profile:
    """Return a profile with the one case that the stitch needs, through its plain data."""
    located = locate(stitch_input.steps, stitch_input.prompt, policy=STRICT, key=stitch_input.key)
    named = None if isinstance(located, Refusal) else case_of(located.turn, located.environment)
    cases = () if named is None else (certified(stitch_input.toy, *named, cuts=cuts),)
    profile = Profile(suffix=stitch_input.suffix, stop_ids=stitch_input.toy.stop_ids, cases=cases)
    return from_data(to_data(profile), Profile)


def check(stitch_input: StitchInput, *, cuts: bool) -> None:
    """Compare the answer with every right one, and count the questions."""
    profile, counted = known(stitch_input, cuts=cuts), Counted(stitch_input.toy, cuts=cuts)
    asking = stitch_questions(
        stitch_input.steps, stitch_input.prompt, stitch_input.suffix, key=stitch_input.key, profile=profile
    )
    found = answer(asking, counted)
    right = oracle.answers(
        stitch_input.toy,
        stitch_input.steps,
        stitch_input.prompt,
        stitch_input.suffix,
        STRICT,
        stitch_input.key,
        stitch_input.toy.stop_ids,
    )
    if isinstance(found, Stitched) and right is not None:
        assert found.ids.tolist() in [one.ids for one in right]


@given(ANY_INPUT, st.booleans())
@tries(6)
def test_a_profile_never_gives_a_wrong_tail(stitch_input: StitchInput, cuts: bool) -> None:
    check(stitch_input, cuts=cuts)


@given(TIDY_INPUT, st.booleans())
@tries(6)
def test_a_turn_that_ended_as_it_should_is_followed_by_its_tail(
    stitch_input: StitchInput, cuts: bool
) -> None:
    check(stitch_input, cuts=cuts)


@given(STEADY_WORLD)
@tries(4)
def test_what_is_stitched_without_a_profile_is_stitched_with_one(stitch_input: StitchInput) -> None:
    bare = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix), stitch_input.toy
    )
    profile = known(stitch_input, cuts=True)
    found = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix, profile=profile),
        stitch_input.toy,
    )
    if isinstance(bare, Stitched):
        assert isinstance(found, Stitched)
        assert found.ids == bare.ids
        assert (found.ledger, found.inserted_close) == (bare.ledger, bare.inserted_close)


@given(ANY_WORLD)
@tries(6)
def test_a_profile_never_believes_more_than_a_fresh_proof(stitch_input: StitchInput) -> None:
    """What a case answers from short histories, a proof of the very messages must show."""
    profile = known(stitch_input, cuts=True)
    found, bare = (
        answer(
            stitch_questions(
                stitch_input.steps,
                stitch_input.prompt,
                stitch_input.suffix,
                key=stitch_input.key,
                profile=attrs.evolve(profile, cases=cases),
            ),
            stitch_input.toy,
        )
        for cases in (profile.cases, ())
    )
    if isinstance(found, Stitched) and all(case.mode is not Mode.HISTORY for case in profile.cases):
        assert isinstance(bare, Stitched)
        assert found.ids == bare.ids


@given(STEADY_WORLD)
@tries(4)
def test_a_free_case_that_is_recognized_costs_one_question_about_what_is_new(
    stitch_input: StitchInput,
) -> None:
    profile, counted = known(stitch_input, cuts=True), Counted(stitch_input.toy, cuts=True)
    found = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix, profile=profile),
        counted,
    )
    if isinstance(found, Stitched) and len(counted.asked) == 1 and profile.cases[0].mode is Mode.FREE:
        assert len(counted.asked[0]) <= len(found.environment) + PAST


@given(STEADY_WORLD)
@tries(4)
def test_the_whole_conversation_is_compared_when_asked_for(stitch_input: StitchInput) -> None:
    found = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix), stitch_input.toy
    )
    if isinstance(found, Stitched):
        assert (
            answer(recheck_questions(found, stitch_input.prompt), Counted(stitch_input.toy, cuts=True))
            is not False
        )
        wrong = attrs.evolve(found, added=(*found.added[:-1], found.added[-1] + 1))
        assert (
            answer(recheck_questions(wrong, stitch_input.prompt), Counted(stitch_input.toy, cuts=True))
            is not True
        )


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
