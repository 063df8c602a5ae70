"""What is known of a template saves questions and changes no answer.

Every law about what follows a turn holds with a profile as it does without: the ids are those of the tail of
the real conversation. Where the profile's case is shown, one question is asked, and where the case depends on
nothing before the turn, it holds no more messages than are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import attrs
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import oracle
from tests.profiles import tries
from tito_core import Policy, Refusal, Rendered, Stitched, answer, locate, stitch_questions
from tito_core.data import from_data, to_data
from tito_core.recheck import recheck_questions
from tito_core.seams.case import TurnKind, case_of
from tito_core.seams.certify import certify_questions
from tito_core.seams.profile import Case, Mode, Profile
from tito_core.seams.prove import TOO_MANY
from tito_core.testing.strategies.stitch_input import ANY_INPUT, TIDY_INPUT, StitchInput, tidy_stitch_inputs
from tito_core.testing.toys import TOYS, Message, Toy, toy_named

first_call_name, numbered_hello, thinking_switch = map(
    toy_named, ("first_call_name", "numbered_hello", "thinking_switch")
)

STRICT = Policy()
PAST = 5
"""The most messages of a short history and the turn itself."""
STEADY_FAMILIES = tuple(toy for toy in TOYS if not toy.nondeterministic)
STEADY_WORLD = tidy_stitch_inputs(STEADY_FAMILIES)
ANY_WORLD = st.one_of(STEADY_WORLD, tidy_stitch_inputs((numbered_hello, first_call_name, thinking_switch)))


WHOLE, CUTS, TEXTS = "whole", "cuts", "texts"
"""Ways to answer: whole renders; no more ids than are asked for; the text, too."""
WAYS = st.sampled_from((WHOLE, CUTS, TEXTS))


class Counted:
    """A toy that counts what it is asked, and answers in one of `WAYS`."""

    def __init__(self, toy: Toy, way: str) -> None:
        self.toy = toy
        self.asked: list[Sequence[Message]] = []
        self.way = way
        if way != WHOLE:
            self.rendered = self._rendered

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        self.asked.append(messages)
        return self.toy(messages, add_generation_prompt=add_generation_prompt)

    def _rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        self.asked.append(messages)
        whole = self.toy.page(messages, add_generation_prompt=add_generation_prompt).text
        cut = whole.index(since) if since is not None and whole.count(since) == 1 else 0
        if self.way == CUTS:
            return Rendered(None, self.toy.tokenizer.encode(whole[cut:]))
        return Rendered(whole, self.toy.tokenizer.encode(whole[cut:]) if ids else ())


@cache
def certified(toy: Toy, kind: TurnKind, shape: tuple[str, ...], way: str) -> Case:
    return answer(certify_questions(kind, shape, toy.suffix, toy.stop_ids), Counted(toy, way))


def known(stitch_input: StitchInput, way: str) -> Profile:
    """Return a profile with the one case that the stitch needs, through its plain data."""
    located = locate(stitch_input.steps, stitch_input.prompt, policy=STRICT, key=stitch_input.key)
    named = None if isinstance(located, Refusal) else case_of(located.turn, located.environment)
    cases = () if named is None else (certified(stitch_input.toy, *named, way),)
    profile = Profile(suffix=stitch_input.suffix, stop_ids=stitch_input.toy.stop_ids, cases=cases)
    return from_data(to_data(profile), Profile)


def check(stitch_input: StitchInput, way: str) -> None:
    """Compare the answer with every right one, and count the questions."""
    profile, counted = known(stitch_input, way), Counted(stitch_input.toy, way)
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
    if (
        isinstance(found, Stitched)
        and right is not None
        and not oracle.named_like_stop(found.step, stitch_input.toy)
    ):
        assert found.ids.tolist() in [one.ids for one in right]


@given(ANY_INPUT, WAYS)
@tries(6)
def test_a_profile_never_gives_a_wrong_tail(stitch_input: StitchInput, way: str) -> None:
    check(stitch_input, way)


@given(TIDY_INPUT, WAYS)
@tries(6)
def test_a_turn_that_ended_as_it_should_is_followed_by_its_tail(stitch_input: StitchInput, way: str) -> None:
    check(stitch_input, way)


@given(STEADY_WORLD, WAYS)
@tries(4)
def test_what_is_stitched_without_a_profile_is_stitched_with_one(stitch_input: StitchInput, way: str) -> None:
    """Of turns that an engine may have sampled, without a stop inside: only the profile knows the stops."""
    inside = {index for step in stitch_input.steps for index in step.completion_ids[:-1]}
    assume(inside.isdisjoint(stitch_input.toy.stop_ids))
    bare = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix), stitch_input.toy
    )
    profile = known(stitch_input, CUTS)
    found = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix, profile=profile),
        Counted(stitch_input.toy, way),
    )
    if isinstance(bare, Stitched):
        assert isinstance(found, Stitched)
        assert found.ids == bare.ids
        assert (found.ledger, found.inserted_close) == (bare.ledger, bare.inserted_close)


@given(ANY_WORLD, WAYS)
@tries(6)
def test_a_profile_never_believes_more_than_a_fresh_proof(stitch_input: StitchInput, way: str) -> None:
    """What a case answers from short histories, a proof of the very messages must show.

    Unless it takes too many questions: then a profile is what the refusal asks for.
    """
    profile = known(stitch_input, CUTS)
    found, bare = (
        answer(
            stitch_questions(
                stitch_input.steps,
                stitch_input.prompt,
                stitch_input.suffix,
                key=stitch_input.key,
                profile=attrs.evolve(profile, cases=cases),
            ),
            Counted(stitch_input.toy, way),
        )
        for cases in (profile.cases, ())
    )
    short = all(case.mode is not Mode.HISTORY for case in profile.cases)
    if isinstance(found, Stitched) and short and bare != TOO_MANY:
        assert isinstance(bare, Stitched)
        assert found.ids == bare.ids


@given(STEADY_WORLD)
@tries(4)
def test_a_free_case_that_is_recognized_costs_one_question_about_what_is_new(
    stitch_input: StitchInput,
) -> None:
    profile, counted = known(stitch_input, CUTS), Counted(stitch_input.toy, CUTS)
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
            answer(recheck_questions(found, stitch_input.prompt), Counted(stitch_input.toy, CUTS))
            is not False
        )
        wrong = attrs.evolve(found, added=(*found.added[:-1], found.added[-1] + 1))
        assert (
            answer(recheck_questions(wrong, stitch_input.prompt), Counted(stitch_input.toy, CUTS)) is not True
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
    return [certified(toy, kind, shape, CUTS) for kind, shape in usual]
