"""What becomes of a case: how it is shown, what it rests on, or why it is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import pytest

from tests.core import example
from tests.core.example import each, refusing
from tito_core import Reason, TokenizeFn, answer
from tito_core.seams.case import TurnKind
from tito_core.seams.certify import MOST_RENDERS, CaseToShow, certify_questions
from tito_core.seams.profile import Case, Mode
from tito_core.testing.toys import TOYS, Message, Toy

BY_NAME = {toy.name: toy for toy in TOYS}
PLAIN = TurnKind(before="user", reasoning=False, calls=0, content="text")
CALL = TurnKind(before="user", reasoning=False, calls=1, content="empty")
CALLS = TurnKind(before="tool", reasoning=True, calls=2, content="absent")


def certified(toy: Toy, kind: TurnKind, *shape: str) -> Case:
    return answer(certify_questions(kind, shape, toy.suffix, toy.stop_ids), toy)


SHOWN = [  # mode, rewritten, (place of the text, arguments as an object)
    ("chatml", PLAIN, ("user",), Mode.FREE, False, (None, False)),
    ("chatml", PLAIN, ("system", "user"), Mode.FREE, False, (None, False)),
    ("chatml", CALL, ("tool",), Mode.FREE, False, (-1, False)),
    ("chatml", CALLS, ("tool+",), Mode.FREE, False, (-1, False)),
    ("thinking", CALLS, ("tool+", "user"), Mode.FREE, True, (-1, False)),
    ("alternating", PLAIN, ("user",), Mode.FREE, False, (None, False)),
    ("mapping_arguments", CALL, ("tool",), Mode.FREE, False, (-1, True)),
    ("markers", CALL, ("tool",), Mode.FREE, False, (-1, False)),
    ("harmony", CALLS, ("tool+",), Mode.FREE, False, (0, False)),
    ("sliding_window", PLAIN, ("system", "user"), Mode.FREE, True, (None, False)),
    ("tool_changes_opening", PLAIN, ("user",), Mode.HISTORY, False, (None, False)),
    ("numbered_turns", CALL, ("tool",), Mode.HISTORY, True, (-1, False)),
]


@pytest.mark.parametrize(("name", "kind", "shape", "mode", "rewritten", "form"), SHOWN)
def test_a_case_is_shown_in_unlike_histories(  # one row of the table
    name: str,
    kind: TurnKind,
    shape: tuple[str, ...],
    mode: Mode,
    rewritten: bool,
    form: tuple[int | None, bool],
) -> None:
    case = certified(BY_NAME[name], kind, *shape)
    assert (case.kind, case.shape, case.mode, case.reason, case.detail) == (kind, shape, mode, None, "")
    assert 1 < case.histories < case.renders <= MOST_RENDERS
    assert case.rewritten == rewritten
    assert case.recipe is not None
    assert (case.recipe.place, case.recipe.as_object, case.recipe.cut) == (*form, False)


LOST = "the template loses, repeats or merges the turn's text"
WORDS = "the tail differs where the turn has other words"
NO_TRACE = "a system message leaves no trace after the turn"
TWICE = "a new assistant message is not written once after the turn"
REFUSED = [
    ("repeats_answer", PLAIN, ("assistant", "user"), Reason.UNPROVEN_TAIL, TWICE),
    ("empty", PLAIN, ("user",), Reason.UNPROVEN_TAIL, LOST),
    ("empty", CALL, ("tool",), Reason.UNPROVEN_TAIL, LOST),
    ("nonce", PLAIN, ("user",), Reason.UNPROVEN_TAIL, LOST),
    ("repeats_answer", PLAIN, ("user",), Reason.UNPROVEN_TAIL, LOST),
    ("repeats_arguments", CALL, ("tool",), Reason.UNPROVEN_TAIL, WORDS),
    ("alternating", CALL, ("tool",), Reason.TEMPLATE_REFUSED, "roles must alternate: found tool for user"),
    ("harmony", PLAIN, ("system", "user"), Reason.SWALLOWED, NO_TRACE),
]


@pytest.mark.parametrize(("name", "kind", "shape", "reason", "detail"), REFUSED)
def test_an_unproven_case_is_refused_with_its_reason(
    name: str, kind: TurnKind, shape: tuple[str, ...], reason: Reason, detail: str
) -> None:
    case = certified(BY_NAME[name], kind, *shape)
    assert 0 < case.renders <= MOST_RENDERS
    refused = Case(kind=kind, shape=shape, mode=Mode.REFUSED, reason=reason, detail=detail)
    assert attrs.evolve(case, renders=0) == refused


def test_calls_of_one_name_are_shown_and_calls_of_two() -> None:
    to_show = CaseToShow(CALLS, ("tool+",), suffix=(2,), stop_ids=())
    turns = [sample.turn.message for sample in to_show.samples()]
    names = [{call["function"]["name"] for call in turn["tool_calls"]} for turn in turns]
    assert [len(one) for one in names] == [1, 2]
    assert not names[0] & names[1]


def at_most(count: int) -> TokenizeFn:
    """Return ChatML as a template that takes so many messages."""
    return refusing(lambda messages: len(messages) > count, f"{count} messages at most", BY_NAME["chatml"])


@pytest.mark.parametrize(("kind", "shape"), [(PLAIN, "user"), (CALL, "tool")])
@pytest.mark.parametrize(
    ("most", "reason", "detail"),
    [
        (3, Reason.TEMPLATE_REFUSED, "3 messages at most"),
        (4, Reason.UNPROVEN_TAIL, "too few histories are taken"),
        (5, None, ""),
    ],
)
def test_a_case_is_certified_if_the_template_takes_more_than_one_history(
    kind: TurnKind, shape: str, most: int, reason: Reason | None, detail: str
) -> None:
    """What holds in one history alone was not shown to hold in others."""
    toy = BY_NAME["chatml"]
    case = answer(certify_questions(kind, (shape,), toy.suffix, toy.stop_ids), at_most(most))
    assert (case.reason, case.detail) == (reason, detail)
    assert case.mode is (Mode.REFUSED if reason else Mode.FREE)


measuring = each(lambda m, ids, _: [*ids[:-2], 500 + len(ids), ids[-1]] if m["role"] == "user" else ids)
"""Ends a user's text with an id for its length: then each of several messages is asked about alone."""


def test_a_certificate_that_takes_too_many_renders_is_refused() -> None:
    case = answer(certify_questions(PLAIN, ("user", "system") * 40, (example.CLOSE,)), measuring)
    assert (case.mode, case.reason) == (Mode.REFUSED, Reason.UNPROVEN_TAIL)
    assert case.detail == f"more than {MOST_RENDERS} renders"


@pytest.mark.parametrize(("kind", "shape", "closed"), [(PLAIN, "user", 1), (CALL, "tool", 1)])
def test_a_recipe_says_how_many_ids_close_the_turn(kind: TurnKind, shape: str, closed: int) -> None:
    """A call's turn ends with a stop of its own here, which is known; the next opener is no part of it."""
    toy = BY_NAME["two_closes"]
    recipe = certified(toy, kind, shape).recipe
    assert recipe is not None
    assert (recipe.closed, len(recipe.close)) == (closed, closed)
    assert toy.tokenizer.decode(recipe.close) == ("<|eom|>" if kind is CALL else "<|im_end|>")


def test_a_stop_that_opens_what_follows_is_found_and_closes_nothing() -> None:
    toy = BY_NAME["markers"]
    recipe = certified(toy, CALL, "tool").recipe
    assert recipe is not None
    assert recipe.closed == 0
    assert toy.tokenizer.decode(recipe.close) == "<|observation|>"


def looped_without_system(past: Sequence[Message]) -> bool:
    opened = past[0]["role"] == "system"
    return not opened and any(message["role"] == "tool" for message in past)


def called_with_texts(past: Sequence[Message]) -> bool:
    calls = [call for message in past for call in message.get("tool_calls") or ()]
    return any(isinstance(call["function"]["arguments"], str) for call in calls)


def answered_without_system(past: Sequence[Message]) -> bool:
    opened = past[0]["role"] == "system"
    return not opened and [message["role"] for message in past].count("assistant") > 1


def answered_without_calls(past: Sequence[Message]) -> bool:
    roles = [message["role"] for message in past]
    return "tool" not in roles and roles.count("assistant") > 1


@pytest.mark.parametrize(
    "reads", [looped_without_system, called_with_texts, answered_without_system, answered_without_calls]
)
def test_a_case_is_asked_about_in_histories_of_other_forms(
    reads: Callable[[Sequence[Message]], bool],
) -> None:
    """The richest history has a system text, a tool loop and arguments as objects, all at once."""
    tokenize = each(lambda m, ids, past: [*[900] * bool(past and m["role"] == "user" and reads(past)), *ids])
    case = answer(certify_questions(PLAIN, ("user",), (example.CLOSE,), (example.CLOSE,)), tokenize)
    assert case.mode is Mode.HISTORY, case
