"""A profile that grows certifies a case once, when a conversation first has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tests.core.pictures import PLACEHOLDERS, counting, first_step, in_lists, numbering, showing, tokenize
from tito_core import (
    Message,
    Refusal,
    Step,
    Stitched,
    TokenizeFn,
    answer,
    stitch_questions,
    suffix_ids,
    try_stitch,
)
from tito_core.seams.certify import certify_questions
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe
from tito_core.seams.profile import Mode, Profile
from tito_core.seams.prove import Proof
from tito_core.seams.tail import require_profile
from tito_core.seams.turn import SampledTurn
from tito_core.testing.toys import TOYS

SUFFIX = (example.CLOSE,)
BY_NAME = {toy.name: toy for toy in TOYS}
LONGEST = 8
"""Messages of a short history, a turn and what follows it."""
ASKED = SampledTurn(message=example.assistant(), stop=None, history=(example.user(),))


def growing(**more: Any) -> GrowingProfile:
    return GrowingProfile(Profile(suffix=SUFFIX, **more))


class Counting:
    """A function that tokenizes and counts what it is asked."""

    def __init__(self, tokenize: Any = example.tokenize) -> None:
        self.count = 0
        self.tokenize = tokenize
        self.certifying: Counting = self

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        self.count += 1
        ids: list[int] = self.tokenize(messages, add_generation_prompt=add_generation_prompt)
        return ids


def test_it_is_a_profile_and_has_what_its_own_has() -> None:
    one = growing(stop_ids=(9, 5), key="k")
    require_profile(one)
    assert (one.key, one.suffix, one.stop_ids) == ("k", SUFFIX, (9, 5))


def test_a_case_is_certified_when_it_is_first_asked_for_and_known_from_then_on() -> None:
    one, counting = growing(), Counting()
    counts = []
    for words in ("a", "b", "c"):
        before = counting.count
        proof = answer(one.known_tail_questions(ASKED, (example.user(words),)), counting)
        assert isinstance(proof, Proof)
        assert proof.ids == (*SUFFIX, *example.tokenize([example.user(words)], add_generation_prompt=True))
        counts.append(counting.count - before)
    (case,) = one.profile.cases
    assert counts == [case.renders + 2, 2, 2]
    assert case == answer(certify_questions(case.kind, case.shape, SUFFIX), example.tokenize)


def test_a_certificate_is_asked_of_the_function_that_is_given_for_certificates() -> None:
    one, counting = growing(), Counting()
    counting.certifying = Counting()
    assert isinstance(answer(one.known_tail_questions(ASKED, (example.user("a"),)), counting), Proof)
    (case,) = one.profile.cases
    assert (counting.certifying.count, counting.count) == (case.renders, 2)


def test_each_case_is_certified_by_itself() -> None:
    one = growing()
    for environment in (
        [example.user("a")],
        [example.user("a"), example.user("b")],
        [{"role": "system", "content": "s"}],
    ):
        assert isinstance(
            answer(one.known_tail_questions(ASKED, tuple(environment)), example.tokenize), Proof
        )
    assert [case.shape for case in one.profile.cases] == [("user",), ("user+",), ("system",)]


def test_a_conversation_without_a_name_is_proven_each_time() -> None:
    one, counting = growing(), Counting()
    named = attrs.evolve(ASKED, message={**example.assistant(), "name": "ann"})
    assert answer(one.known_tail_questions(named, (example.user("a"),)), counting) is None
    assert (counting.count, one.profile.cases) == (0, ())


def test_a_refused_case_is_kept_and_asked_about_once() -> None:
    """`repeats_answer` repeats what the turn said, so that nothing can be proven of it."""
    toy = BY_NAME["repeats_answer"]
    one, counting = GrowingProfile(Profile(suffix=toy.suffix)), Counting(toy)
    assert answer(one.known_tail_questions(ASKED, (example.user("a"),)), counting) is None
    asked = counting.count
    assert asked > 0
    assert answer(one.known_tail_questions(ASKED, (example.user("a"),)), counting) is None
    assert counting.count == asked
    assert [case.mode for case in one.profile.cases] == [Mode.REFUSED]


def test_a_stop_that_a_profile_knows_shows_where_a_call_ends() -> None:
    toy = BY_NAME["two_closes"]
    one = GrowingProfile(probe(toy, toy.stop_ids))
    assert one.profile.cases == ()
    turn = attrs.evolve(ASKED, message=example.calling("a1b2c3d4e"))
    result = {**example.RESULT, "tool_call_id": "a1b2c3d4e"}
    proof = answer(one.known_tail_questions(turn, (result,)), toy)
    assert isinstance(proof, Proof)
    assert toy.tokenizer.decode(proof.ids).startswith("<|eom|><|im_start|>tool\n7")


@pytest.mark.parametrize(
    "name",
    [
        "chatml",
        "thinking",
        "grouped",
        "alternating",
        "tool_changes_opening",
        "repeats_answer",
        "numbered_hello",
    ],
)
def test_a_profile_that_grows_changes_no_answer(name: str) -> None:
    toy = BY_NAME[name]
    one = GrowingProfile(Profile(suffix=toy.suffix, stop_ids=toy.stop_ids))
    step = example.step(
        prompt_ids=[1, 2], sampled=[*toy.sample([example.user(), example.assistant()]), toy.stop_ids[0]]
    )
    for words in ("why?", "say hello", "why?"):
        prompt = example.prompt(step, words)
        found = answer(stitch_questions([step], prompt, toy.suffix, profile=one), toy)
        right = answer(stitch_questions([step], prompt, toy.suffix), toy)
        if isinstance(right, Stitched):
            assert isinstance(found, Stitched)
            assert found.ids == right.ids
        else:
            assert name in {"tool_changes_opening", "repeats_answer", "numbered_hello"}
            assert (
                not isinstance(found, Stitched)
                or toy.tokenizer.decode(found.added) in toy.page(prompt, add_generation_prompt=True).text
            )


@pytest.mark.parametrize("template", [tokenize, in_lists])
@pytest.mark.parametrize("shown", [0, 1, 3])
@pytest.mark.parametrize(("new", "questions"), [([], 2), (["cat"], 3), (["cat", "dog"], 4)])
def test_a_known_case_with_images_is_asked_about_twice_and_once_for_each_new_one(
    template: TokenizeFn, shown: int, new: list[str], questions: int
) -> None:
    step = first_step(showing("What is it?", *["cow"] * shown), keys=["cow"] * shown)
    prompt, growing = [*step.messages, showing("And this?", *new)], GrowingProfile(probe(template))
    assert len(asked_with(growing, step, prompt, template)) > questions
    again = asked_with(growing, step, prompt, template)
    assert len(again) == questions
    assert all(len(messages) <= LONGEST for messages in again)


def test_images_that_a_template_numbers_are_asked_about_in_the_whole_conversation() -> None:
    step = first_step(showing("What is it?", "cow", "cow"), keys=["cow", "cow"])
    prompt, growing = [*step.messages, showing("And this?", "cat")], GrowingProfile(probe(numbering))
    found = try_stitch([step], prompt, suffix_ids(numbering), numbering, media=PLACEHOLDERS, profile=growing)
    assert isinstance(found, Stitched)
    assert [case.mode for case in growing.profile.cases] == [Mode.HISTORY]
    assert bytes(index for index in found.added if index < 256).count(b"Picture 3: ") == 1


def test_words_that_make_a_template_count_images_are_seen_in_a_history_that_shows_some() -> None:
    step, growing = first_step(showing("Hello")), GrowingProfile(probe(counting))
    found = [
        try_stitch(
            [step],
            [*step.messages, showing(text, "cat")],
            suffix_ids(counting),
            counting,
            media=PLACEHOLDERS,
            profile=growing,
        )
        for text in ("And this?", "How many?")
    ]
    assert [type(one) for one in found] == [Stitched, Refusal]


def asked_with(
    growing: GrowingProfile, step: Step, prompt: list[Message], template: TokenizeFn
) -> list[tuple[Message, ...]]:
    """Return the conversations that the template is asked about for the next prompt."""
    recorder = example.Recorder(template)
    suffix = suffix_ids(template)
    found = try_stitch([step], prompt, suffix, recorder, media=PLACEHOLDERS, profile=growing)
    assert isinstance(found, Stitched)
    return recorder.asked


@pytest.mark.parametrize(
    "results",
    [("7", "", "8"), ("7", "8", ""), ("", "7", "", "8"), ("", "7", "8")],
    ids=["one of three", "the last of three", "two of four", "the first of three"],
)
def test_more_forms_of_results_than_a_sample_has_calls_are_certified(results: tuple[str, ...]) -> None:
    """Parallel calls of which some return nothing."""
    toy = BY_NAME["chatml"]
    keys = [f"call{place}aaaa" for place in range(len(results))]
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": key, "type": "function", "function": function} for key in keys]
    step = Step(
        prompt=[example.user()],
        completion=[{"role": "assistant", "content": "", "tool_calls": calls}],
        prompt_ids=toy([example.user()], add_generation_prompt=True),
        completion_ids=[900, *toy.stop_ids[:1]],
    )
    answers = zip(keys, results, strict=True)
    new = [{"role": "tool", "tool_call_id": key, "content": text} for key, text in answers]
    one = GrowingProfile(probe(toy, toy.stop_ids))
    found = try_stitch([step], [*step.messages, *new], toy.suffix, toy, profile=one)
    assert found == try_stitch([step], [*step.messages, *new], toy.suffix, toy)
    assert isinstance(found, Stitched)
    assert [case.mode for case in one.profile.cases] == [Mode.FREE]


def test_a_case_that_one_history_alone_takes_is_refused() -> None:
    """What holds in one was not shown to hold in others: this template takes four messages at most."""
    toy = BY_NAME["chatml"]

    tokenize = example.refusing(lambda messages: len(messages) > 4, template=toy)
    one = GrowingProfile(Profile(suffix=toy.suffix, stop_ids=toy.stop_ids))
    answer(one.known_tail_questions(ASKED, (example.user("a"),)), tokenize)
    assert [case.mode for case in one.profile.cases] == [Mode.REFUSED]
