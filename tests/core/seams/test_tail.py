"""A case that a profile knows is asked about twice, and how it is asked is in its recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tests.core.example import CALLING, RESULT, Recorder, each, shown
from tito_core import (
    InputError,
    Located,
    Message,
    Question,
    Reason,
    Refusal,
    Step,
    Stitched,
    answer,
    continue_questions,
    locate,
)
from tito_core.seams.case import TurnKind
from tito_core.seams.close import Cut
from tito_core.seams.profile import Case, Mode, Profile, Recipe
from tito_core.seams.prove import Proof
from tito_core.seams.tail import require_profile, tail_questions
from tito_core.seams.turn import SampledTurn

SUFFIX = (example.CLOSE,)
PLAIN = TurnKind(before="user", reasoning=False, calls=0, content="text")
ZEPHYR = tuple(example.text("Zephyr"))
"""The text that stands for the turn's own, as `talk` writes it."""


def case(*shape: str, kind: TurnKind = PLAIN, mode: Mode = Mode.FREE, **more: Any) -> Case:
    """Return a case that is known, with the recipe of the usual turn but for what is said here."""
    usual: dict[str, Any] = {"place": None, "as_object": False, "past": 0, "mark": ZEPHYR, "rest": ()}
    usual |= {
        "close": SUFFIX,
        "closed": 1,
        "speaks": (example.OPEN, example.ROLES["assistant"]),
        "cut": False,
    }
    return Case(kind=kind, shape=shape, mode=mode, recipe=Recipe(**(usual | more)))


def place(step: Step, *new: Message) -> Located:
    found = locate([step], [*step.messages, *new])
    assert isinstance(found, Located)
    return found


def first(located: Located, *cases: Case) -> Question:
    """Return the first question of a stitch whose profile knows these cases."""
    return next(continue_questions(located, SUFFIX, profile=Profile(suffix=SUFFIX, cases=cases)))


def asked_twice(located: Located, tokenize: Any, *cases: Case) -> None:
    """See that two questions are enough, and that the answer is the one that is proven without a profile."""
    recorder = Recorder(tokenize)
    profile = Profile(suffix=SUFFIX, cases=cases)
    found = answer(continue_questions(located, SUFFIX, profile=profile), recorder)
    assert isinstance(found, Stitched)
    assert found == answer(continue_questions(located, SUFFIX), tokenize)
    first, second = recorder.asked
    new = len(located.environment)
    assert [m["role"] for m in first[-new:]] == [m["role"] for m in second[-new:]]
    added = [message["content"].count(" more") for message in second[-new:]]
    assert added == [2 * (place + 1) for place in range(new)]
    shorter = [message["content"].replace(" more", "") for message in second[-new:]]
    assert shorter == [message["content"] for message in first[-new:]]
    assert not {m["content"] for m in first[:-new]} & {m["content"] for m in second[: -new - 1]} - {""}


def test_a_case_that_is_known_is_asked_about_twice() -> None:
    asked_twice(place(example.step(), example.user("more")), example.tokenize, case("user"))


@pytest.mark.parametrize("reason", [Reason.TEMPLATE_REFUSED, Reason.SWALLOWED, Reason.UNPROVEN_TAIL])
def test_a_developer_is_asked_about_as_a_developer_alone(reason: Reason) -> None:
    """Whoever renders for an engine knows whom the engine takes for a system."""
    refused = Case(kind=PLAIN, shape=("developer",), mode=Mode.REFUSED, reason=reason)
    located = place(example.step(), {"role": "developer", "content": "Be brief."})
    assert first(located, refused, case("system")).messages[-1]["role"] == "developer"


def test_the_arguments_of_a_call_are_written_as_the_recipe_says() -> None:
    function = {"name": "f", "arguments": {"x": 1}}
    turn = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]}
    step = Step(
        prompt=[example.user()], completion=[turn], prompt_ids=[1], completion_ids=[900, example.CLOSE]
    )
    kind = TurnKind(before="user", reasoning=False, calls=1, content="empty")
    rest = tuple(example.text("'}"))
    known = case("tool", kind=kind, place=-1, as_object=True, rest=rest)
    asked_twice(
        place(step, {"role": "tool", "tool_call_id": "c", "content": "7"}),
        example.takes_arguments(dict),
        known,
    )


def test_only_what_follows_the_text_is_asked_for_where_an_answer_may_be_cut() -> None:
    located = place(example.step(), example.user("more"))
    assert first(located, case("user", cut=True)) == Question(
        (example.user(), example.assistant("Zephyr"), example.user("more")),
        add_generation_prompt=True,
        since="Zephyr",
        text=True,
    )
    assert first(located, case("user", cut=False)).since is None


def test_the_whole_render_is_asked_for_if_the_new_messages_have_the_stand_in_text() -> None:
    assert first(place(example.step(), example.user("A ZEPHYR?")), case("user", cut=True)).since is None


def test_a_tail_that_depends_on_the_history_is_asked_for_in_the_real_one() -> None:
    step = example.step([example.user("a"), example.assistant("b"), example.user("c")])
    located = place(step, example.user("more"))
    free = case("user")
    assert first(located, free).messages[:-2] == (example.user("c"),)
    assert first(located, attrs.evolve(free, mode=Mode.HISTORY)).messages[:-2] == tuple(step.prompt)


def test_a_tail_that_depends_on_the_history_is_asked_for_twice_in_the_real_one() -> None:
    """No other history needs to agree; the new messages must leave a trace in this one."""
    located = place(example.step(), example.user("more"))
    recorder = Recorder()
    profile = Profile(suffix=SUFFIX, cases=(case("user", mode=Mode.HISTORY),))
    assert isinstance(answer(continue_questions(located, SUFFIX, profile=profile), recorder), Stitched)
    assert [messages[:-1] for messages in recorder.asked] == [
        (example.user(), example.assistant("Zephyr"))
    ] * 2
    first, second = (messages[-1]["content"] for messages in recorder.asked)
    assert first == "more"
    assert second.startswith("more more")


censoring = shown(
    lambda messages: [message for message in messages if "secret" not in str(message.get("content"))]
)
"""Writes no message that says `secret`."""


def numbering(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write how many messages there are where one of them asks for it."""
    asked = any("count" in str(message.get("content")) for message in messages)
    ids = example.tokenize(messages, add_generation_prompt=False)
    speaks = example.tokenize([], add_generation_prompt=add_generation_prompt)
    return [*ids, *[700 + len(messages)] * asked, *speaks]


@pytest.mark.parametrize(
    ("tokenize", "words", "reason"),
    [
        (censoring, "the weather", None),
        (censoring, "the secret", Reason.SWALLOWED),
        (numbering, "the weather", None),
        (numbering, "the count", Reason.UNPROVEN_TAIL),
    ],
)
def test_words_of_new_messages_that_change_what_a_template_does_are_seen_in_the_second_answer(
    tokenize: Any, words: str, reason: Reason | None
) -> None:
    """The case was certified with other words, so that nothing of it answers for these."""
    recorder = Recorder(tokenize)
    located = place(example.step(), example.user(words))
    profile = Profile(suffix=SUFFIX, cases=(case("user"),))
    found = answer(continue_questions(located, SUFFIX, profile=profile), recorder)
    assert found == answer(continue_questions(located, SUFFIX), tokenize)
    if reason is None:
        assert isinstance(found, Stitched)
        assert len(recorder.asked) == 2
    else:
        assert isinstance(found, Refusal)
        assert found.reason is reason
        assert len(recorder.asked) > 2


def test_words_that_make_a_template_drop_a_message_are_seen_in_whole_histories_too() -> None:
    """Nothing of a certificate says that these words are written."""
    located = place(example.step(), example.user("the secret"))
    profile = Profile(suffix=SUFFIX, cases=(case("user", mode=Mode.HISTORY),))
    found = answer(continue_questions(located, SUFFIX, profile=profile), censoring)
    assert isinstance(found, Refusal)
    assert found == answer(continue_questions(located, SUFFIX), censoring)


def repeating(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write a user's message that begins with `again` in place of the next user's, too."""
    shown = list(messages)
    for place in range(1, len(shown)):
        before = shown[place - 1]
        if before["role"] == shown[place]["role"] == "user" and before["content"].startswith("again"):
            shown[place] = before
    return example.tokenize(shown, add_generation_prompt=add_generation_prompt)


def test_a_message_that_is_written_in_place_of_another_leaves_no_trace_of_that_one() -> None:
    """The answers grow, but not by each message once."""
    located = place(example.step(), example.user("again"), example.user("b"))
    profile = Profile(suffix=SUFFIX, cases=(case("user+"),))
    found = answer(continue_questions(located, SUFFIX, profile=profile), repeating)
    assert found == answer(continue_questions(located, SUFFIX), repeating)
    assert found == Refusal(Reason.UNPROVEN_TAIL, "a new user message is not written once after the turn")


merging = each(
    lambda m, ids, _: (
        [*ids[:-2], 1000 + ids[-2]] if m["role"] == "user" and ids[-2] != example.text("e")[0] else ids
    )
)
"""Merges the last letter of a user's message with what closes it, unless it is an `e`."""


def test_a_content_whose_last_id_merges_is_asked_about_one_by_one() -> None:
    """Then a longer content does not insert ids, and nothing is wrong with the template."""
    located = place(example.step(), example.user("b"))
    recorder = Recorder(merging)
    profile = Profile(suffix=SUFFIX, cases=(case("user"),))
    found = answer(continue_questions(located, SUFFIX, profile=profile), recorder)
    assert isinstance(found, Stitched)
    assert list(found.added) == merging([example.user("b")], add_generation_prompt=True)
    assert found == answer(continue_questions(located, SUFFIX), merging)
    assert 2 < len(recorder.asked) < 8


def test_a_profile_gives_a_proof_as_asking_without_one_does() -> None:
    """What is known of the new messages' ids needs where the turn ends, and what closes it."""
    turn = SampledTurn(message=example.assistant(), stop=None, history=(example.user(),))
    environment = (example.user("more"),)
    profile = Profile(suffix=SUFFIX, cases=(case("user"),))
    proofs = [
        answer(tail_questions(turn, environment, SUFFIX, one), example.tokenize) for one in (profile, None)
    ]
    for proof in proofs:
        assert isinstance(proof, Proof)
        assert (proof.cut, proof.generation_prompt, proof.parts) == (Cut(0, 1), 2, False)
        assert proof.ids == (*SUFFIX, *example.tokenize(environment, add_generation_prompt=True))


def test_the_stops_of_a_profile_are_known_to_a_proof() -> None:
    """The suffix is not what closes a call here; the stop that a profile knows is."""
    tokenize = each(lambda m, ids, _: [*ids[:-1], 5 if m.get("tool_calls") else example.CLOSE])
    turn = SampledTurn(message=CALLING, stop=None, history=(example.user(),))
    result = RESULT
    bare = answer(tail_questions(turn, (result,), SUFFIX), tokenize)
    assert isinstance(bare, Refusal)
    assert bare.reason is Reason.UNPROVEN_TAIL
    proof = answer(tail_questions(turn, (result,), SUFFIX, Profile(suffix=SUFFIX, stop_ids=(5,))), tokenize)
    assert isinstance(proof, Proof)
    assert proof.cut.closed == 1
    assert proof.ids == (5, *tokenize([result], add_generation_prompt=True))


@pytest.mark.parametrize("wrong", [5, {}, "profile", Profile, object()])
def test_an_object_that_is_no_profile_is_named(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"^profile is .*: give a Profile, such as probe returns, or None$"):
        require_profile(wrong)


def test_a_profile_is_a_profile() -> None:
    require_profile(None)
    require_profile(Profile(suffix=SUFFIX))
