"""The turns that ids may end with if the turn is unknown: one of each kind that templates distinguish."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import example
from tito_core.seams.case import TurnKind
from tito_core.seams.turns import NAMES, possible_turns

Plain = dict[str, Any]


def result(identity: str | None = "c", **more: Any) -> Plain:
    named = {} if identity is None else {"tool_call_id": identity}
    return {"role": "tool", **named, "content": "7", **more}


def called(turn: Plain) -> list[tuple[str, str]]:
    return [(call["id"], call["function"]["name"]) for call in turn["tool_calls"]]


def kind(turn: Plain) -> tuple[bool, int, str]:
    found = TurnKind.of(turn, "user")
    assert found is not None
    return found.reasoning, found.calls, found.content


@pytest.mark.parametrize(
    "environment",
    [
        (example.user(),),
        (),
        ({"role": "system", "content": "s"}, example.user()),
        (example.user(), example.assistant(), result()),  # the result answers a call of a new message
    ],
)
def test_without_results_the_turn_may_have_called_or_not(environment: tuple[Plain, ...]) -> None:
    (plain, thoughtful), (calling, others) = possible_turns(environment)
    assert kind(plain) == (False, 0, "text")
    assert list(map(kind, thoughtful)) == [(True, 0, "text")]
    assert kind(calling) == (False, 1, "empty")
    assert {kind(turn) for turn in others} == {
        (False, 1, "text"),
        (True, 1, "empty"),
        (False, 1, "empty"),
        (False, 2, "empty"),
        (True, 2, "text"),
    }


def test_results_answer_calls_of_the_turn_in_order() -> None:
    ((turn, others),) = possible_turns((result("c"), example.user(), result("d"), example.assistant()))
    assert called(turn) == [("c", NAMES[0]), ("d", NAMES[0])]
    orders = [[name for name, _ in called(turn)][-2:] for turn in others]
    assert sorted(orders) == [["c", "d"]] * 5 + [["d", "c"]]  # results may come in another order
    assert len({name for turn in others for name, _ in called(turn)}) == 3  # one more, in front of them


def test_a_result_that_names_its_tool_was_a_call_of_that_tool() -> None:
    ((turn, others),) = possible_turns((result("c", name="look"), result("d")))
    assert called(turn) == [("c", "look"), ("d", NAMES[0])]
    assert {tuple(called(turn)[-2:]) for turn in others} == {
        (("c", "look"), ("d", NAMES[0])),
        (("c", "look"), ("d", NAMES[1])),
        (("d", NAMES[0]), ("c", "look")),
    }


def test_results_without_an_id_answer_calls_of_different_ids() -> None:
    ((turn, _),) = possible_turns((result(None), result(None)))
    names = [name for name, _ in called(turn)]
    assert len(set(names)) == 2
    assert {len(name) for name in names} == {9}  # some templates take nothing else
    assert all(name.isalnum() for name in names)
