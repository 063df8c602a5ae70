"""Causes by the text alone, and how a message is read for them."""

from __future__ import annotations

import pytest

from tests.core.drift.conversations import (
    assistant,
)
from tito_core.drift import TurnPart
from tito_core.drift.cause import Evidence, find_causes


def seen(part: TurnPart, used: str, rendered: str, **more: object) -> list[str]:
    evidence = Evidence(part=part, used=used, rendered=rendered, **more)  # type: ignore[arg-type]  # by name
    return [cause.name for cause, _ in find_causes(evidence)]


@pytest.mark.parametrize(
    ("used", "causes"),
    [("<think>7</think>so ", ["THINKING"]), ("<think>7</think>7 so ", ["THINKING", "REWRITTEN"])],
)
def test_a_text_that_repeats_the_reasoning_is_not_lost_with_it(used: str, causes: list[str]) -> None:
    message = assistant("7 so ", reasoning="7")
    assert seen(TurnPart.REASONING, used, "so", message=message, verbatim=False) == causes


@pytest.mark.parametrize(
    ("content", "rendered", "verbatim", "causes"),
    [
        ("so", "", False, ["THINKING", "REWRITTEN"]),
        ("so", "", None, ["THINKING", "REWRITTEN"]),
        ("so", "SO", False, ["THINKING", "REWRITTEN"]),
        ("", "", False, ["THINKING", "PARSE"]),
        ("", "", None, ["THINKING", "PARSE"]),
        ("s", "s", False, ["THINKING", "PARSE"]),
        ("s", "S", False, ["THINKING", "PARSE", "REWRITTEN"]),
        ("so", "so", False, ["THINKING"]),
    ],
)
@pytest.mark.parametrize("reasoning", ["7", "so so"])
def test_content_that_is_lost_with_the_reasoning_has_its_own_cause(
    content: str, rendered: str, verbatim: bool | None, causes: list[str], reasoning: str
) -> None:
    message, used = assistant(content, reasoning=reasoning), f"<think>{reasoning}</think>so"
    assert seen(TurnPart.REASONING, used, rendered, message=message, verbatim=verbatim) == causes


@pytest.mark.parametrize("respelled", [False, True])
def test_text_beside_a_difference_that_has_other_ids_too_is_named(respelled: bool) -> None:
    causes = ["REWRITTEN"] + ["RETOKENIZED"] * respelled
    assert seen(TurnPart.CONTENT, "so", "SO", message=assistant("so"), respelled=respelled) == causes


@pytest.mark.parametrize(
    ("used", "rendered", "cause"),
    [
        ("<think>so", "so", "THINKING"),
        ("so", "</think>so", "THINKING"),
        ("<think>so", "no", "REWRITTEN"),
        ("so", "<think>no", "REWRITTEN"),
        ("so", "no", "REWRITTEN"),
    ],
)
def test_marks_of_reasoning_between_turns_are_named_where_nothing_else_differs(
    used: str, rendered: str, cause: str
) -> None:
    for part in (TurnPart.PROMPT, TurnPart.OPENER, TurnPart.ENVIRONMENT):
        assert seen(part, used, rendered) == [cause]


CALLED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}],
}


@pytest.mark.parametrize(
    ("lost", "causes"),
    [
        ('<tool_call>{"name": "f"}</tool_call>', ["THINKING", "PARSE", "REWRITTEN"]),
        ("so", ["THINKING", "PARSE"]),
    ],
)
def test_calls_that_are_lost_with_the_reasoning_may_be_lost_by_the_template(
    lost: str, causes: list[str]
) -> None:
    message = {**CALLED, "reasoning": "7"}
    assert seen(TurnPart.REASONING, f"<think>7</think>{lost}", "", message=message, verbatim=False) == causes


@pytest.mark.parametrize(
    ("used", "rendered", "message", "cause"),
    [
        ('{"x":1}', '{"x":2}', CALLED, "REWRITTEN"),
        ("{'x':1}", '{"x": 1}', CALLED, "PARSE"),
        ("", '"x": 1', CALLED, "PARSE"),
        ("", "<|marker|>", CALLED, "REWRITTEN"),
        ("{x}", "", None, "UNKNOWN"),
    ],
)
def test_where_the_template_cannot_be_asked_the_message_is_evidence(
    used: str, rendered: str, message: dict[str, object] | None, cause: str
) -> None:
    assert seen(TurnPart.CALLS, used, rendered, message=message) == [cause]


def test_a_cut_turn_that_loses_its_text_is_no_truncation() -> None:
    assert seen(TurnPart.CONTENT, "gone", "", cut=True, message=assistant("gone"), verbatim=False) == [
        "REWRITTEN"
    ]


def test_reasoning_that_the_rendering_has_in_another_place_is_not_dropped() -> None:
    message = assistant("so", reasoning="7")
    used, rendered = "<think>7</think>so", "so 7"
    assert seen(TurnPart.REASONING, used, rendered, message=message, verbatim=False) == ["REWRITTEN"]


@pytest.mark.parametrize(
    ("part", "causes"), [(TurnPart.CLOSE, ["RETOKENIZED"]), (TurnPart.CONTENT, ["SEAM", "RETOKENIZED"])]
)
def test_a_close_of_the_same_text_is_only_spelled_otherwise(part: TurnPart, causes: list[str]) -> None:
    assert seen(part, "a", "a", seam=True) == causes


@pytest.mark.parametrize(
    ("used", "rendered", "cause"),
    [("<think></think>", "", "THINKING"), ("", "<think></think>", "REWRITTEN")],
)
def test_marks_of_empty_reasoning_that_the_template_adds_are_not_dropped(
    used: str, rendered: str, cause: str
) -> None:
    message = assistant("yes")
    assert seen(TurnPart.CONTENT, used, rendered, message=message, verbatim=False) == [cause]
