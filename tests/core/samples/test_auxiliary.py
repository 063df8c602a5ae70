"""Calls beside a conversation are recognized by what they are, and may be left out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tito_core import Message, Step, render_key
from tito_core.samples import (
    Agent,
    AuxiliaryRule,
    Forest,
    SampleOptions,
    StoredCall,
    auxiliary_calls,
    make_rows,
)

TOOLS = [{"type": "function", "function": {"name": "f"}}]
SOME, NONE = render_key(TOOLS), render_key(template_args={"enable_thinking": False})


def call(
    name: str,
    ids: Sequence[int],
    sampled: Sequence[int],
    key: str | None = SOME,
    *,
    prompt: Sequence[Message] = (),
    text: str = "an answer",
    order: int = 0,
) -> StoredCall:
    step = Step(
        prompt=prompt or [{"role": "user", "content": name}],
        completion=[{"role": "assistant", "content": text}],
        prompt_ids=ids,
        completion_ids=sampled,
        key=key,
    )
    return StoredCall(name=name, step=step, order=order)


MAIN = (call("a", [1], [2], order=1), call("b", [1, 2, 3], [4], order=2))
TITLE = call("title", [9], [8], NONE, order=0)


def test_a_call_alone_without_tools_stands_beside_those_with_tools() -> None:
    assert auxiliary_calls(Forest.of([*MAIN, TITLE])) == {"title"}
    again = call("again", [9], [7], NONE, order=3)
    assert auxiliary_calls(Forest.of([*MAIN, TITLE, again])) == {"title", "again"}


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([TITLE], id="there is no other call"),
        pytest.param(
            [TITLE, call("x", [1], [2], NONE), call("y", [1, 2, 3], [4], NONE)], id="none has tools"
        ),
        pytest.param([*MAIN, call("u", [9], [8], None)], id="it is not known what it was rendered with"),
        pytest.param([*MAIN, call("u", [9], [8])], id="it has tools"),
        pytest.param([*MAIN, TITLE, call("next", [9, 8, 5], [6], NONE)], id="it goes on"),
        pytest.param([*MAIN, call("side", [1, 2, 7], [6], NONE)], id="it continues a call"),
    ],
)
def test_all_others_are_the_conversation(calls: list[StoredCall]) -> None:
    assert auxiliary_calls(Forest.of(calls)) == frozenset()


def test_a_call_that_goes_on_with_tools_is_the_conversation() -> None:
    hello: list[Message] = [{"role": "user", "content": "hello"}]
    first = call("first", [9], [8], NONE, prompt=hello, order=1)
    prompt = [*hello, *first.step.completion, {"role": "user", "content": "go on"}]
    then = call("then", [7, 7, 7], [6], prompt=prompt, order=2)
    assert auxiliary_calls(Forest.of([first, then])) == frozenset()


def test_of_equal_calls_any_may_be_the_one_that_goes_on() -> None:
    hello: list[Message] = [{"role": "user", "content": "hello"}]
    twins = [call(name, [9], [8], NONE, prompt=hello, order=place) for place, name in enumerate("xy", 1)]
    prompt = [*hello, *twins[0].step.completion, {"role": "user", "content": "go on"}]
    forest = Forest.of([*twins, call("then", [7, 7, 7], [6], prompt=prompt, order=3)])
    assert forest["then"].rivals == ("x", "y")
    assert auxiliary_calls(forest) == frozenset()


def test_rows_say_what_they_are_and_an_option_leaves_them_out() -> None:
    forest = Forest.of([*MAIN, TITLE])
    assert {row.name: row.auxiliary for row in make_rows(forest).rows} == {"title": True, "b": False}
    dropped = make_rows(forest, SampleOptions(auxiliary=AuxiliaryRule.DROP))
    assert [row.name for row in dropped.rows] == ["b"]
    assert [(one.call, one.why.name) for one in dropped.untrained] == [("title", "AUXILIARY")]


def test_a_row_says_which_conversation_it_goes_on_from() -> None:
    summary = "We looked for the bridge, which is in Bern, and found two trains that go there today."
    asked = [{"role": "user", "content": "Summarize."}]
    last = call("summary", [1, 2, 3, 4, 5], [6], text=summary, prompt=asked, order=3)
    prompt = [{"role": "user", "content": f"Before:\n\n{summary}"}]
    after = call("after", [7], [8], prompt=prompt, order=4)
    rows = make_rows(Forest.of([*MAIN, last, after])).rows
    assert {row.name: row.follows for row in rows} == {"summary": None, "after": "summary"}


def test_rows_say_which_agent_made_them() -> None:
    subs = [call("sub", [5], [6], order=3), call("other", [7], [8], order=5)]
    more = call("b2", [1, 2, 3, 4, 5], [6], order=4)
    branch = call("branch", [1, 2, 9], [6], order=6)
    rows = make_rows(Forest.of([TITLE, *MAIN, *subs, more, branch])).rows
    assert {row.name: row.agent for row in rows} == {
        "title": Agent.AUXILIARY,
        "b2": Agent.MAIN,
        "branch": Agent.MAIN,
        "sub": Agent.SUB_AGENT,
        "other": Agent.SUB_AGENT,
    }
