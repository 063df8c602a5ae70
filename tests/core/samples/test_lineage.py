"""How each call came about, by example: continued, retried, rewritten."""

from __future__ import annotations

import pytest

from tests.core.example import assistant, user
from tests.core.samples.calls import call, counting, kinds, rollout
from tito_core import Forgiveness
from tito_core.samples.forest import Forest
from tito_core.samples.node import EdgeKind
from tito_core.samples.restated import MessageTrie, TurnIndex


def test_a_turn_continues_the_longest_whole_call() -> None:
    calls = call("a", [1], [2, 3]), call("b", [1, 2, 3, 4], [5]), call("c", [1, 2, 3, 4, 5, 6], [7])
    assert kinds(*calls) == {
        "a": (None, "UNRELATED", None),
        "b": ("a", "CONTINUES", "a"),
        "c": ("b", "CONTINUES", "b"),
    }


def test_part_of_a_call_is_no_parent() -> None:
    """One sampled id less, as where a stop was replaced, and the row would not be what was sampled."""
    assert kinds(call("a", [1], [2, 3]), call("b", [1, 2, 4], [5]))["b"] == (None, "UNRELATED", None)
    assert kinds(call("a", [1], [2, 3]), call("b", [1, 2], [5]))["b"] == (None, "UNRELATED", None)


def test_a_cut_turn_is_continued_over_the_close_that_was_inserted() -> None:
    cut = call("a", [1], [5], truncated=True, finish_reason="length")
    assert kinds(cut, call("b", [1, 5, 2, 1, 9], [6]))["b"] == ("a", "CONTINUES", "a")


def test_a_turn_may_be_continued_inside() -> None:
    assert kinds(call("a", [1], [5], truncated=True), call("b", [1, 5], [6]))["b"] == ("a", "CONTINUES", "a")


def test_the_same_prompt_ids_are_a_retry_of_the_first() -> None:
    calls = (
        call("b", [1, 2, 3], [5]),
        call("a", [1], [2]),
        call("c", [1, 2, 3], [6]),
        call("d", [1, 2, 3], []),
    )
    assert kinds(*calls) == {
        "a": (None, "UNRELATED", None),
        "b": ("a", "CONTINUES", "a"),
        "c": ("a", "RETRIES", "b"),
        "d": ("a", "RETRIES", "b"),
    }


def test_no_ids_are_no_evidence() -> None:
    """A call without prompt ids retries nothing, and one that sampled nothing is never a parent."""
    assert kinds(call("a", [], [5]), call("b", [], [6]))["b"] == (None, "UNRELATED", None)
    assert kinds(call("a", [1], []), call("b", [1, 2], [6]))["b"] == (None, "UNRELATED", None)
    assert kinds(call("a", [1], []), call("b", [1], []))["b"] == (None, "RETRIES", "a")
    assert kinds(call("a", [], [5]), call("b", [5, 6], [7]))["b"] == ("a", "CONTINUES", "a")


def test_a_history_that_was_rendered_again_is_a_rewrite() -> None:
    first = call("a", [1, 5], [6], [user("hi")], "hello")
    second = call("b", [1, 5, 6, 7], [8, 9], [user("hi"), assistant("hello"), user("so?")], "well")
    prompt = [user("hi"), assistant("hello"), user("so?"), assistant("well"), user("and?")]
    third = call("c", [1, 5, 6, 7, 88, 3], [9], prompt, "thus")
    fourth = call("d", [1, 55, 3], [9], prompt[:3], "thus")
    found = kinds(first, second, third, fourth)
    assert found["c"] == ("a", "REWRITES", "b")
    assert found["d"] == (None, "REWRITES", "a")
    assert Forest.of([first, second, third]).trees == (("a", "b", "c"),)


def test_a_rewrite_says_what_was_forgiven() -> None:
    first = call("a", [1, 5], [6], [user("hi")], "")
    prompt = [user("hi"), {"role": "assistant", "content": None}, user("so?")]
    node = Forest.of([first, call("b", [1, 55, 3], [9], prompt)])["b"]
    assert (node.kind, node.of) == (EdgeKind.REWRITES, "a")
    assert node.forgiven == frozenset((Forgiveness.EMPTY_CONTENT,))


def test_ids_count_where_messages_disagree() -> None:
    first = call("a", [1, 5], [6], [user("hi")], "hello")
    second = call("b", [1, 5, 6, 7], [8], [user("ho"), user("so?")], "well")
    assert kinds(first, second)["b"] == ("a", "CONTINUES", "a")


def test_an_injected_turn_is_environment() -> None:
    first = call("a", [1, 5], [6], [user("hi")], "hello")
    prompt = [user("hi"), assistant("hello"), user("so?"), assistant("not sampled"), user("and?")]
    assert kinds(first, call("b", [1, 5, 6, 7], [8], prompt))["b"] == ("a", "CONTINUES", "a")


def test_messages_are_looked_at_only_where_ids_leave_something_open(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = rollout(20)
    counts = [counting(monkeypatch, kind, "__init__") for kind in (MessageTrie, TurnIndex)]
    Forest.of(calls)
    assert counts == [[0], [0]]
    Forest.of([*calls, call("again", [9], [9], list(calls[5].step.messages))])
    assert counts == [[1], [0]]
