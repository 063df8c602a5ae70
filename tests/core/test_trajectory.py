"""A trajectory shares what its steps repeat, and changes none of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from tests.core import example
from tito_core import Ids, InputError, Step, Trajectory
from tito_core.trajectory import longest_first

FIRST = example.step()
CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}


def later(**more: Any) -> Step:
    """Return a step that repeats the first, but for what is said here."""
    usual: dict[str, Any] = {"prompt": example.prompt(FIRST), "prompt_ids": [*FIRST.ids, 7]}
    return Step(completion=[example.assistant("b")], completion_ids=[905, example.CLOSE], **(usual | more))


@pytest.mark.parametrize(
    ("step", "shares"),
    [
        (later(), True),
        (later(prompt_ids=[*FIRST.prompt_ids, 950, example.CLOSE, 7]), False),  # rendered anew: other ids
        (
            later(prompt=[example.user(), example.assistant("hallo"), example.user("more")]),
            False,
        ),  # another branch
        (later(prompt=[example.user()]), False),
        (
            later(prompt=[example.user(), {**example.assistant(), "name": None}, example.user("more")]),
            False,
        ),  # restated
        (
            later(prompt=[example.user(), {**example.assistant(), "refusal": "no"}, example.user("more")]),
            False,
        ),
    ],
)
def test_a_step_shares_what_it_repeats_in_words_and_in_ids(step: Step, shares: bool) -> None:
    stored = Trajectory([FIRST, step])
    assert stored[1] == step
    assert stored[1].ids.tolist() == step.ids.tolist()
    assert list(stored[1].messages) == list(step.messages)
    assert stored[1].ids.extends(stored[0].ids) == shares
    assert stored[1].messages.extends(stored[0].messages) == shares


def called(call: object, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [example.user(), example.user()], "tool_calls": call, **more}


@pytest.mark.parametrize(
    "restated",
    [
        called([CALL | {"function": {"name": "f", "arguments": "{}", "strict": True}}]),
        called([CALL | {"name": "x"}]),
        called(CALL),
        called([CALL], content=[example.user(), example.user() | {"x": None}]),
    ],
)
def test_a_prompt_that_is_forgiven_stays_as_it_is(restated: dict[str, Any]) -> None:
    """What says the same in other words is not replaced by them."""
    first = Step(prompt=[example.user()], completion=[called([CALL])], prompt_ids=[1], completion_ids=[2])
    step = later(prompt=[example.user(), restated, example.user("more")], prompt_ids=[1, 2, 3])
    assert Trajectory([first, step])[1].prompt == [example.user(), restated, example.user("more")]


def test_a_trajectory_is_a_sequence_of_steps() -> None:
    first, second = example.step(), example.step(words="other")
    trajectory = Trajectory([first]).append(second)
    assert list(trajectory) == [first, second]
    assert trajectory == [first, second]
    assert trajectory != [first]
    assert trajectory != [second, first]
    assert trajectory != 5
    assert trajectory[0] == first
    assert trajectory[:1] == [first]
    assert trajectory.older == [first]
    assert Trajectory().older is None
    assert trajectory.longest == 2
    assert Trajectory().longest == 0
    assert repr(trajectory) == "Trajectory(2 steps, longest 2 messages)"
    with pytest.raises(TypeError):
        hash(trajectory)
    with pytest.raises(InputError, match="step is a dict: give a Step"):
        trajectory.append({})  # type: ignore[arg-type]  # what a newcomer tries


def test_the_newest_step_is_given_without_a_search_if_none_can_be_longer() -> None:
    class Unsearched(list[Step]):
        def __iter__(self) -> Iterator[Step]:
            pytest.fail("searched")

    longer = later()
    assert next(longest_first(Unsearched([FIRST, longer]), longer.messages.length)) is longer


def test_a_step_whose_sampled_ids_are_packed_shares_its_prompt_too() -> None:
    first = example.step()
    again = example.step(
        example.prompt(first), prompt_ids=[*first.ids, 7], sampled=Ids.of([900, example.CLOSE]).packed()
    )
    stored = Trajectory([first, again])[1]
    assert stored == again
    assert stored.prompt_ids.extends(Trajectory([first])[0].ids) or stored.prompt_ids.parent is not None
    assert all(isinstance(part, array) for part in stored.ids.parts())


def test_a_step_that_already_shares_is_kept_as_it_is() -> None:
    plain = Trajectory([example.step()])[0]
    assert Trajectory([plain])[0] is plain


def test_an_error_about_a_step_shows_no_conversation_text() -> None:
    with pytest.raises(InputError) as caught:
        Trajectory([{"role": "user", "content": "SECRET"}])  # type: ignore[list-item]  # the mistake
    assert str(caught.value) == "step is a dict: give a Step, such as Stitched.then returns"


def test_a_subclass_of_a_trajectory_appends_to_its_own_kind() -> None:
    class Named(Trajectory):
        """A host's own trajectory."""

    assert type(Named().append(example.step())) is Named
