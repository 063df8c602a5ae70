"""Tool call ids that a client renames stay those of the session, in what is new as well."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core import example
from tito_core import (
    Forgiveness,
    Messages,
    Policy,
    Step,
    Stitched,
    Trajectory,
    answer,
    locate,
    stitch_questions,
)
from tito_core.locate import Located
from tito_core.normalization.tool_ids import restore_tool_ids
from tito_core.seams.case import case_of

SUFFIX = (example.CLOSE,)
RENAMED = Policy(forgive=frozenset((Forgiveness.RENAMED_TOOL_IDS,)))


def calling(*names: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": name, "function": function} for name in names],
    }


def result(name: str, content: str = "7") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": content}


def called(prompt: Any, *names: str) -> Step:
    ids = example.tokenize(prompt, add_generation_prompt=True)
    return Step(
        prompt=prompt, completion=[calling(*names)], prompt_ids=ids, completion_ids=[900, example.CLOSE]
    )


def test_a_client_with_names_of_its_own_goes_on_turn_after_turn() -> None:
    steps, chat = Trajectory([called([example.user()], "ours0")]), [example.user()]
    for turn in range(4):
        chat += [calling(f"theirs{turn}"), result(f"theirs{turn}", str(turn))]
        found = answer(stitch_questions(steps, chat, SUFFIX, policy=RENAMED), example.tokenize)
        assert isinstance(found, Stitched)
        assert found.step is steps[-1]
        assert found.forgiven == {Forgiveness.RENAMED_TOOL_IDS}
        assert list(found.environment) == [result(f"ours{turn}", str(turn))]
        assert sum(found.ledger.mask()) == 2 * (turn + 1)
        steps = steps.append(
            found.then(completion=[calling(f"ours{turn + 1}")], completion_ids=[900, example.CLOSE])
        )
    assert [message.get("tool_call_id") for message in steps[-1].prompt][2::2] == [
        "ours0",
        "ours1",
        "ours2",
        "ours3",
    ]


def test_a_located_prompt_has_the_call_ids_of_the_session() -> None:
    step = called([example.user()], "a", "b")
    prompt = [example.user(), calling("b", "a"), result("b", "one"), result("a", "two")]  # swapped
    found = locate([step], prompt, policy=RENAMED)
    assert isinstance(found, Located)
    assert found.turn.message == calling("a", "b")
    assert found.environment == (result("a", "one"), result("b", "two"))
    assert case_of(found.turn, found.environment) == answer_case(step, result("a", "one"), result("b", "two"))
    assert prompt[2] == result("b", "one")  # theirs stays theirs


def answer_case(step: Step, *new: dict[str, Any]) -> Any:
    """Return the case of a prompt that renames nothing."""
    found = locate([step], step.messages.then(new))
    assert isinstance(found, Located)
    return case_of(found.turn, found.environment)


def test_an_id_without_a_name_in_the_history_is_kept() -> None:
    ours = Messages.of([example.user(), calling("a")])
    odd: list[Any] = [
        example.user(),
        calling("x"),
        result("x"),
        {"role": "tool", "tool_call_id": None, "content": "?"},
        {"role": "tool", "content": "?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": ["f", {"function": {}}, *calling("new", "x")["tool_calls"]],
        },
    ]
    assert restore_tool_ids(ours, odd) == (
        example.user(),
        calling("a"),
        result("a"),
        *odd[3:5],
        {**odd[5], "tool_calls": ["f", {"function": {}}, *calling("new", "a")["tool_calls"]]},
    )


def test_an_id_is_restored_only_where_both_have_one() -> None:
    unnamed = {**calling("x"), "tool_calls": [{"function": calling("x")["tool_calls"][0]["function"]}]}
    for ours, theirs in ((unnamed, calling("x")), (calling("x"), unnamed)):
        prompt = [example.user(), theirs, result("x")]
        assert restore_tool_ids([example.user(), ours], prompt) == tuple(prompt)


@given(st.permutations("abcd"), st.integers(0, 4))
def test_a_history_gets_its_ids_back_and_two_calls_never_share_one(names: list[str], known: int) -> None:
    """A client may use for a new call an id that the session gave to another one."""
    ours = [calling(name) for name in "abcd"[:known]]
    theirs = [calling(name) for name in names[:known]]
    *history, new = restore_tool_ids(ours, [*theirs, calling(*"abcdx")])
    assert history == ours
    ids = [call["id"] for call in new["tool_calls"]]
    assert len(set(ids)) == 5
    assert (
        dict(zip("abcdx", ids, strict=True)).items() >= dict(zip(names, "abcd"[:known], strict=False)).items()
    )


def test_ids_that_were_exchanged_in_a_row_stay_apart() -> None:
    """The session's `a` and `b` are the client's `b` and `c`, so that its `a` is a third call."""
    ours, theirs = [calling("a"), calling("b")], [calling("b"), calling("c")]
    assert restore_tool_ids(ours, [*theirs, calling("a"), result("a")])[2:] == (calling("c"), result("c"))


def test_a_single_call_that_is_in_no_list_gets_its_id_back() -> None:
    theirs = {**calling("x"), "tool_calls": calling("x")["tool_calls"][0]}
    (found,) = restore_tool_ids([calling("a")], [theirs])
    assert found == {**theirs, "tool_calls": calling("a")["tool_calls"][0]}
