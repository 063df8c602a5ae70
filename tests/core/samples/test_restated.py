"""Compaction by example: a shorter prompt restates a turn or quotes an answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.example import assistant, user
from tests.core.samples.calls import call, kinds

SUMMARY = "What was done so far:\n- looked at the sky"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (user(SUMMARY), "COMPACTS"),
        (user(f"You did this:\n{SUMMARY}\nGo on."), "COMPACTS"),
        ({"role": "user", "content": [{"type": "text", "text": SUMMARY}]}, "COMPACTS"),
        (
            {"role": "user", "content": [{"type": "text", "text": "So:"}, {"type": "text", "text": SUMMARY}]},
            "COMPACTS",
        ),
        (user(f"You did this: {SUMMARY}"), "COMPACTS"),
        (user(SUMMARY[:-1]), "UNRELATED"),
        (user("What was done so far:"), "UNRELATED"),
        (assistant(SUMMARY), "UNRELATED"),
        (user("- looked at the sky"), "UNRELATED"),
    ],
)
def test_a_shorter_prompt_that_quotes_an_answer_compacts(message: dict[str, Any], kind: str) -> None:
    long = [user("hi"), assistant("hello"), user("sum up")]
    found = kinds(call("a", [1], [2], long, SUMMARY), call("b", [7], [8], [message]))
    assert found["b"][1] == kind
    assert found["b"][2] == ("a" if kind == "COMPACTS" else None)


def test_a_short_answer_is_no_evidence_of_compaction() -> None:
    long = [user("hi"), assistant("hello"), user("sum up")]
    assert kinds(call("a", [1], [2], long, "yes"), call("b", [7], [8], [user("yes")]))["b"][1] == "UNRELATED"


@pytest.mark.parametrize(("size", "kind"), [(15, "UNRELATED"), (16, "COMPACTS")])
def test_an_answer_of_sixteen_characters_is_evidence(size: int, kind: str) -> None:
    long = [user("hi"), assistant("hello"), user("sum up")]
    answer = "x" * size
    assert kinds(call("a", [1], [2], long, answer), call("b", [7], [8], [user(answer)]))["b"][1] == kind


def test_a_prompt_is_no_compaction_of_a_later_call_or_of_a_shorter_one() -> None:
    long = call("b", [1], [2], [user("hi"), assistant("hello"), user("sum up")], SUMMARY)
    assert kinds(long, call("a", [7], [8], [user(SUMMARY)]))["a"][1] == "UNRELATED"
    short = call("a", [1], [2], [user("sum up")], SUMMARY)
    assert kinds(short, call("b", [7], [8], [user(SUMMARY), user("go on")]))["b"][1] == "UNRELATED"


def test_a_compaction_has_the_same_system_text() -> None:
    system = {"role": "system", "content": "be brief"}
    long = call("a", [1], [2], [system, user("hi"), assistant("hello"), user("sum up")], SUMMARY)
    assert kinds(long, call("b", [7], [8], [user(SUMMARY)]))["b"][1] == "UNRELATED"
    assert kinds(long, call("b", [7], [8], [system, user(SUMMARY)]))["b"] == (None, "COMPACTS", "a")


def test_a_prompt_that_keeps_the_last_turn_compacts() -> None:
    system = {"role": "system", "content": "be brief"}
    long = call("a", [1], [2], [system, user("hi"), assistant("hello"), user("so?")], "well")
    kept = [system, user("so?"), assistant("well"), user("and?")]
    assert kinds(long, call("b", [7], [8], kept))["b"] == (None, "COMPACTS", "a")
    parted = [system, user("so?"), user("well?"), assistant("well")]
    assert kinds(long, call("b", [7], [8], parted))["b"][1] == "UNRELATED"


def test_a_history_that_begins_otherwise_restates_nothing() -> None:
    """Not even a call of one message, which is the first one that is known."""
    first = call("a", [1], [2], [], "hello")
    other = [user("hi"), assistant("yes"), user("so")]
    assert kinds(first, call("b", [3], [4], other))["b"] == (None, "UNRELATED", None)
    again = [assistant("hello"), *other]
    assert kinds(first, call("b", [3], [4], again))["b"] == (None, "REWRITES", "a")


@pytest.mark.parametrize(("argument", "kind"), [(1, "REWRITES"), (True, "UNRELATED")])
def test_truth_in_a_message_is_not_one(argument: object, kind: str) -> None:
    def history(value: object) -> list[dict[str, Any]]:
        function = {"name": "f", "arguments": {"x": value}}
        tool_call = {"id": "c1", "type": "function", "function": function}
        return [user("hi"), {"role": "assistant", "content": "", "tool_calls": [tool_call]}]

    again = [*history(argument), assistant("hello"), user("so")]
    found = kinds(call("a", [1], [2], history(1), "hello"), call("b", [3], [4], again))
    assert found["b"][1] == kind
