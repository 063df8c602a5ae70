"""A trajectory shares what its steps repeat, and changes none of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import talk
from tito_core import Step, Trajectory

FIRST = talk.step()
CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}


def later(**more: Any) -> Step:
    """Return a step that repeats the first, but for what is said here."""
    usual: dict[str, Any] = {"prompt": talk.prompt(FIRST), "prompt_ids": [*FIRST.ids, 7]}
    return Step(completion=[talk.said("b")], completion_ids=[905, talk.CLOSE], **(usual | more))


@pytest.mark.parametrize(
    ("step", "shares"),
    [
        (later(), True),
        (later(prompt_ids=[*FIRST.prompt_ids, 950, talk.CLOSE, 7]), False),  # rendered anew: other ids
        (later(prompt=[talk.user(), talk.said("hallo"), talk.user("more")]), False),  # another branch
        (later(prompt=[talk.user()]), False),
        (later(prompt=[talk.user(), {**talk.said(), "name": None}, talk.user("more")]), False),  # restated
        (later(prompt=[talk.user(), {**talk.said(), "refusal": "no"}, talk.user("more")]), False),
    ],
)
def test_a_step_shares_what_it_repeats_in_words_and_in_ids(step: Step, shares: bool) -> None:
    held = Trajectory([FIRST, step])
    assert held[1] == step
    assert held[1].ids.tolist() == step.ids.tolist()
    assert list(held[1].messages) == list(step.messages)
    assert held[1].ids.extends(held[0].ids) == shares
    assert held[1].messages.extends(held[0].messages) == shares


def called(call: object, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [talk.user(), talk.user()], "tool_calls": call, **more}


@pytest.mark.parametrize(
    "restated",
    [
        called([CALL | {"function": {"name": "f", "arguments": "{}", "strict": True}}]),
        called([CALL | {"name": "x"}]),
        called(CALL),
        called([CALL], content=[talk.user(), talk.user() | {"x": None}]),
    ],
)
def test_a_prompt_that_is_forgiven_stays_as_it_is(restated: dict[str, Any]) -> None:
    """What says the same in other words is not replaced by them."""
    first = Step(prompt=[talk.user()], completion=[called([CALL])], prompt_ids=[1], completion_ids=[2])
    step = later(prompt=[talk.user(), restated, talk.user("more")], prompt_ids=[1, 2, 3])
    assert Trajectory([first, step])[1].prompt == [talk.user(), restated, talk.user("more")]
