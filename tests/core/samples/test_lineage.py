"""How each call came about, by example: continued, retried, rewritten."""

from __future__ import annotations

import pytest

from tests.core.example import assistant, user
from tests.core.samples.calls import call, counting, kinds, rollout
from tito_core import Forgiveness
from tito_core.samples.forest import Forest
from tito_core.samples.node import EdgeKind
from tito_core.samples.restated import MessageTrie, TurnIndex


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


def test_messages_are_looked_at_only_where_ids_leave_something_open(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = rollout(20)
    counts = [counting(monkeypatch, kind, "__init__") for kind in (MessageTrie, TurnIndex)]
    Forest.of(calls)
    assert counts == [[0], [0]]
    Forest.of([*calls, call("again", [9], [9], list(calls[5].step.messages))])
    assert counts == [[1], [0]]
