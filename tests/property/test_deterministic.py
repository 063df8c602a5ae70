"""Law 6. Deterministic, and the same on both drivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import tries
from tito_core import (
    Question,
    Questions,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    Trajectory,
    answer,
    stitch,
    stitch_questions,
    suffix_ids,
    suffix_questions,
)
from tito_core.testing.strategies.stitch_input import ANY_INPUT, StitchInput, stitch_inputs
from tito_core.testing.toys import TOYS, Toy

T = TypeVar("T")
STEADFAST = stitch_inputs([toy for toy in TOYS if not toy.nondeterministic])


async def answer_awaited(asking: Questions[T], toy: Toy) -> T:
    """Drive a computation the other way: every answer is awaited."""
    try:
        question = next(asking)
        while True:
            await anyio.lowlevel.checkpoint()
            try:
                ids = toy(question.messages, add_generation_prompt=question.add_generation_prompt)
            except TemplateRefused as refused:
                question = asking.throw(refused)
            else:
                question = asking.send(ids)
    except StopIteration as end:
        value: T = end.value
        return value


def facts(found: Stitched | Refusal) -> Any:
    """Return all that an answer says, as plain data."""
    if isinstance(found, Refusal):
        return found
    return (
        found.ids.tolist(),
        list(found.step.ids),
        found.environment,
        found.added,
        found.ledger,
        found.inserted_close,
        found.replaced_stop,
        found.forgiven,
    )


def asking(stitch_input: StitchInput, steps: Sequence[Step]) -> Questions[Stitched | Refusal]:
    """Return the same stitch with these steps."""
    return stitch_questions(steps, stitch_input.prompt, stitch_input.suffix, key=stitch_input.key)


@given(STEADFAST)
@tries(2)
def test_the_same_question_has_the_same_answer(stitch_input: StitchInput) -> None:
    first = facts(answer(asking(stitch_input, stitch_input.steps), stitch_input.toy))
    assert facts(answer(asking(stitch_input, stitch_input.steps), stitch_input.toy)) == first


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(stitch_input=STEADFAST)
@tries(1)
def test_both_drivers_find_the_same_answer(backend: str, stitch_input: StitchInput) -> None:
    awaited = anyio.run(
        answer_awaited, asking(stitch_input, stitch_input.steps), stitch_input.toy, backend=backend
    )
    assert facts(awaited) == facts(answer(asking(stitch_input, stitch_input.steps), stitch_input.toy))


@given(STEADFAST)
@tries(1)
def test_stitch_and_stitch_questions_give_the_same_answer(stitch_input: StitchInput) -> None:
    """`stitch` returns the ids as a list, and None for a refusal."""
    found = answer(asking(stitch_input, stitch_input.steps), stitch_input.toy)
    plain = stitch(
        stitch_input.steps, stitch_input.prompt, stitch_input.suffix, stitch_input.toy, key=stitch_input.key
    )
    assert plain == (found.ids.tolist() if isinstance(found, Stitched) else None)
    assert plain is None or type(plain) is list


@given(STEADFAST)
@tries(2)
def test_a_list_a_tuple_and_a_trajectory_are_one_history(stitch_input: StitchInput) -> None:
    """However the steps are held, whatever they share."""
    grown = Trajectory()
    for step in stitch_input.steps:
        grown = grown.append(step)
    ways: list[Sequence[Step]] = [
        stitch_input.steps,
        tuple(stitch_input.steps),
        Trajectory(stitch_input.steps),
        grown,
        list(grown),
    ]
    answers = [facts(answer(asking(stitch_input, steps), stitch_input.toy)) for steps in ways]
    assert answers.count(answers[0]) == len(answers)


@given(ANY_INPUT)
@tries(1)
def test_a_trajectory_holds_the_steps_it_was_given(stitch_input: StitchInput) -> None:
    """Sharing changes where things are kept, and nothing that can be seen."""
    stored = Trajectory(stitch_input.steps)
    assert len(stored) == len(stitch_input.steps)
    for ours, theirs in zip(stored, stitch_input.steps, strict=True):
        assert list(ours.messages) == list(theirs.messages)
        assert (list(ours.ids), len(ours.prompt)) == (list(theirs.ids), len(theirs.prompt))
        assert (ours.truncated, ours.key, ours.ledger) == (theirs.truncated, theirs.key, theirs.ledger)


@given(ANY_INPUT, st.integers(0, 3))
@tries(1)
def test_appending_changes_no_earlier_trajectory(stitch_input: StitchInput, size: int) -> None:
    start = Trajectory(stitch_input.steps[:size])
    before = list(start)
    branches = [start.append(step) for step in stitch_input.steps]
    assert list(start) == before
    assert all(list(branch)[:-1] == before for branch in branches)


@pytest.mark.parametrize("toy", [toy for toy in TOYS if not toy.nondeterministic], ids=lambda toy: toy.name)
def test_the_close_is_the_same_on_both_drivers(toy: Toy) -> None:
    try:
        found = suffix_ids(toy)
    except ValueError as error:
        with pytest.raises(type(error)):
            anyio.run(answer_awaited, suffix_questions(), toy)
    else:
        assert anyio.run(answer_awaited, suffix_questions(), toy) == found


def test_an_answer_does_not_change() -> None:
    """Values are frozen: a host may keep them, share them and hand them on."""
    question = Question(({"role": "user", "content": "a"},))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        question.add_generation_prompt = False  # type: ignore[misc]  # that it is refused is what is shown
