"""How often a template is asked, at most: of a turn, of a known case, for a certificate.

An answer is worth no number of renders: beyond the bound the turn is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, target
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.profiles import tries
from tests.property.test_once import RESULTS, TWO, USER, Continued, continued, profile_of
from tito_core import Located, Refusal, Step, Stitched, TemplateRefused, answer, locate, try_stitch
from tito_core.seams.case import CONTENTS, NAMED, TurnKind
from tito_core.seams.certify import certify_questions
from tito_core.seams.suffix import takes_texts_questions
from tito_core.testing.strategies.choices import CHOICES
from tito_core.testing.strategies.message import Chat, draw_conversation
from tito_core.testing.strategies.sampled import completed, rendered
from tito_core.testing.toys import TOYS, Message, Toy
from tito_core.testing.toys.page import Page

CERTIFICATE = 96
TURN = 16
END = 2
"""Questions about a turn that ends with an id of its close: how much it sampled, and whether it is whole."""
FINDING_OUT = 5
"""Questions that show whether a template takes nothing but lists of parts."""
KNOWN = 2


class Counted:
    """A toy that counts what it is asked."""

    def __init__(self, toy: Toy) -> None:
        self.toy, self.asked = toy, 0

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        self.asked += 1
        return self.toy(messages, add_generation_prompt=add_generation_prompt)


ANSWER = {"role": "assistant", "content": "a b"}
ONE = {**TWO, "tool_calls": TWO["tool_calls"][:1]}
USUAL: tuple[tuple[dict[str, Any], Chat], ...] = (
    (ANSWER, [{"role": "user", "content": "q0z"}]),
    (ANSWER, [{"role": "user", "content": "q0z"}, {"role": "user", "content": "q1z"}]),
    (ONE, RESULTS[:1]),
    (TWO, RESULTS),
    (TWO, [*RESULTS, {"role": "user", "content": "q2z"}]),
)
ASIDE = {"role": "system", "content": "b /think"}
"""A note that goes on with a tool loop, and has a switch."""


@st.composite
def asked_about(draw: DrawFn, toys: Sequence[Toy] = TOYS) -> tuple[Toy, Step, Chat]:
    """Draw a step and the prompt that continues it: turns that end in any way, after anything."""
    toy, choices = draw(st.sampled_from(toys)), draw(CHOICES)
    if choices.once_in(2):
        chat = draw_conversation(draw, toy)
        place = choices.pick([place for place, one in enumerate(chat) if one["role"] == "assistant"])
    else:
        case = draw(continued((toy,)))
        chat, place = [*case.history, case.turn, *case.new], len(case.history)
    if choices.once_in(3):
        chat, place = [*chat[:place], ASIDE, *chat[place:]], place + 1
    if choices.once_in(4):
        chat[place] = {**chat[place], "content": choices.pick(("", " ", "a\n", "a \n"))}
    ids, truncated = completed(draw(CHOICES), toy, chat, place)
    step = Step(
        prompt=chat[:place],
        completion=chat[place : place + 1],
        prompt_ids=rendered(toy, chat[:place]),
        completion_ids=ids,
        truncated=truncated,
    )
    return toy, step, chat


def most_of_turn(toy: Toy, found: Stitched | Refusal) -> int:
    """Return how often a template may be asked about a turn; RETRIED refusals may be those of texts alone."""
    if not isinstance(found, Refusal) and answer(takes_texts_questions(), toy):
        return TURN + END
    return TURN + END + FINDING_OUT + (0 if answer(takes_texts_questions(), toy) else TURN)


@pytest.mark.parametrize("known", [False, True], ids=["no stops", "stops"])
@given(asked=asked_about())
@tries(6)
def test_a_turn_whose_history_is_known_takes_few_questions(
    asked: tuple[Toy, Step, Chat], known: bool
) -> None:
    """However it ended, and whatever stands before it and after it."""
    toy, step, prompt = asked
    counted = Counted(toy)
    found = try_stitch([step], prompt, toy.suffix, counted, stops=toy.stop_ids if known else ())
    target(float(counted.asked))
    assert counted.asked <= most_of_turn(toy, found)


@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
def test_a_known_case_takes_two_questions_where_its_profile_answers_it(toy: Toy) -> None:
    """One that recognizes the tail, one that shows what it does not depend on.

    One more shows where a call ends that the template closes in several ways.
    """
    for turn, new in USUAL:
        case = Continued(toy, [USER], turn, new)
        step, prompt = case.step, [USER, turn, *new]
        profile, located = profile_of(toy, step, prompt), locate([step], prompt)
        counted = Counted(toy)
        assert isinstance(located, Located) or toy.name == "empty"
        if isinstance(located, Located):
            proof = answer(profile.known_tail_questions(located.turn, located.environment), counted)
            differs = any(one.recipe is not None and one.recipe.rest is None for one in profile.cases)
            assert proof is None or counted.asked <= KNOWN + differs


REJECTED: dict[str, Callable[[Sequence[Message], int], bool]] = {
    "a system text": lambda messages, place: messages[place]["role"] == "system",
    "no system text": lambda messages, _: messages[0]["role"] != "system",
    "reasoning beside calls": lambda messages, place: bool(
        messages[place].get("tool_calls") and messages[place].get("reasoning")
    ),
    "arguments that are objects": lambda messages, place: any(
        isinstance(call["function"]["arguments"], dict) for call in messages[place].get("tool_calls") or ()
    ),
    "arguments that are texts": lambda messages, place: any(
        isinstance(call["function"]["arguments"], str) for call in messages[place].get("tool_calls") or ()
    ),
    "a question after calls": lambda messages, place: (
        messages[place]["role"] == "user" and any(one.get("tool_calls") for one in messages[:place])
    ),
    "two of a role": lambda messages, place: (
        place > 0 and messages[place]["role"] == messages[place - 1]["role"] != "tool"
    ),
}
"""What a template may reject, as a function of all messages and a place."""


def rejecting(toy: Toy, *names: str) -> Toy:
    """Return a toy that rejects some of `REJECTED`."""

    def write(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
        for name in names:
            if any(REJECTED[name](messages, place) for place in range(len(messages))):
                raise TemplateRefused(name)
        toy.write(page, messages, add_prompt)

    return attrs.evolve(toy, write=write)


@st.composite
def cases(draw: DrawFn) -> tuple[TurnKind, tuple[str, ...]]:
    """Draw a kind of turn, and a shape of what follows it."""
    choices = draw(CHOICES)
    calls = choices.pick((0, 1, 2))
    kind = TurnKind(
        before=choices.pick(NAMED),
        reasoning=choices.once_in(2),
        calls=calls,
        content=choices.pick(CONTENTS) if calls else "text",
        media=choices.pick(((), (), ("image",))),
    )
    results = [
        choices.pick(("tool", "tool:named", "tool:empty", "tool+")[: 3 + (calls > 1)]) for _ in range(calls)
    ]
    later = [
        choices.pick(("user", "user+", "system", "developer", "assistant"))
        for _ in range(choices.pick((0, 1, 2)))
    ]
    return kind, (*results, *(later or (() if results else ("user",))))


@given(st.sampled_from(TOYS), st.lists(st.sampled_from(sorted(REJECTED)), max_size=3, unique=True), cases())
@tries(3)
def test_a_certificate_rests_on_few_renders(
    toy: Toy, rejected: list[str], case: tuple[TurnKind, tuple[str, ...]]
) -> None:
    """Whatever the template rejects, so that a history is tried in many manners."""
    counted = Counted(rejecting(toy, *rejected))
    found = answer(certify_questions(*case, toy.suffix, toy.stop_ids), counted)
    target(float(counted.asked))
    assert counted.asked == found.renders <= CERTIFICATE
