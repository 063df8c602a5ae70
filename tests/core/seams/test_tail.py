"""A case that a profile knows is asked about once, and how it is asked is in its recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tito_core import (
    Located,
    Message,
    Question,
    Reason,
    Step,
    Stitched,
    TemplateRefused,
    answer,
    continue_questions,
    locate,
)
from tito_core.seams.case import TurnKind
from tito_core.seams.profile import Case, Mode, Profile, Recipe

SUFFIX = (example.CLOSE,)
PLAIN = TurnKind(before="user", reasoning=False, calls=0, content="text")
ZEPHYR = tuple(example.text("Zephyr"))
"""The text that stands for the turn's own, as `talk` writes it."""


def case(*shape: str, kind: TurnKind = PLAIN, mode: Mode = Mode.FREE, **more: Any) -> Case:
    """Return a case that is known, with the recipe of the usual turn but for what is said here."""
    usual: dict[str, Any] = {"place": None, "as_object": False, "past": 0, "mark": ZEPHYR, "rest": ()}
    usual |= {"close": SUFFIX, "speaks": (example.OPEN, example.ROLES["assistant"]), "cut": False}
    return Case(kind=kind, shape=shape, mode=mode, recipe=Recipe(**(usual | more)))


def place(step: Step, *new: Message) -> Located:
    found = locate([step], [*step.messages, *new])
    assert isinstance(found, Located)
    return found


def first(located: Located, *cases: Case) -> Question:
    """Return the first question of a stitch whose profile knows these cases."""
    return next(continue_questions(located, SUFFIX, profile=Profile(suffix=SUFFIX, cases=cases)))


def asked_once(located: Located, tokenize: Any, *cases: Case) -> None:
    """See that one question is enough, and that the answer is the one that is proven without a profile."""
    questions: list[Sequence[Message]] = []

    def counting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        questions.append(messages)
        ids: list[int] = tokenize(messages, add_generation_prompt=add_generation_prompt)
        return ids

    profile = Profile(suffix=SUFFIX, cases=cases)
    found = answer(continue_questions(located, SUFFIX, profile=profile), counting)
    assert len(questions) == 1
    assert isinstance(found, Stitched)
    assert found == answer(continue_questions(located, SUFFIX), tokenize)


def strict(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Know no developer, and take nothing but an object for a call's arguments."""
    for message in messages:
        for call in message.get("tool_calls") or ():
            if isinstance(call["function"]["arguments"], str):
                raise TemplateRefused("arguments are a mapping")
        if message["role"] == "developer":
            raise TemplateRefused("no developer here")
    return example.tokenize(messages, add_generation_prompt=add_generation_prompt)


def test_a_case_that_is_known_is_asked_about_once() -> None:
    asked_once(place(example.step(), example.user("more")), example.tokenize, case("user"))


@pytest.mark.parametrize("reason", [Reason.TEMPLATE_REFUSED, Reason.SWALLOWED])
def test_a_developer_whom_a_template_is_known_not_to_take_is_asked_about_as_the_system(
    reason: Reason,
) -> None:
    refused = Case(kind=PLAIN, shape=("developer",), mode=Mode.REFUSED, reason=reason)
    located = place(example.step(), {"role": "developer", "content": "Be brief."})
    asked_once(located, strict, refused, case("system"))


def test_a_case_that_is_refused_for_another_reason_is_not_read_otherwise() -> None:
    """A developer is not the system where the template knows both."""
    refused = Case(kind=PLAIN, shape=("developer",), mode=Mode.REFUSED, reason=Reason.UNPROVEN_TAIL)
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
    asked_once(place(step, {"role": "tool", "tool_call_id": "c", "content": "7"}), strict, known)


def test_only_what_follows_the_text_is_asked_for_where_an_answer_may_be_cut() -> None:
    located = place(example.step(), example.user("more"))
    assert first(located, case("user", cut=True)) == Question(
        (example.user(), example.assistant("Zephyr"), example.user("more")),
        add_generation_prompt=True,
        since="Zephyr",
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
