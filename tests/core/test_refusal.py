"""Refusals and errors say what they are about, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import example
from tito_core import (
    InputError,
    Located,
    Reason,
    Refusal,
    Step,
    Stitched,
    answer,
    continue_questions,
    locate,
    stitch_questions,
)
from tito_core.seams.experiments import OTHER_WORDS, SAME_ID
from tito_core.seams.profile import Profile, Recipe, recognize
from tito_core.testing.toys import TOYS

BY_NAME = {toy.name: toy for toy in TOYS}
SUFFIX = (example.CLOSE,)
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


def refused(name: str, history: list[Any], assistant: dict[str, Any], *new: Any, **more: Any) -> Refusal:
    toy = BY_NAME[name]
    ids = toy(history, add_generation_prompt=True)
    stop = more.pop("sampled", [*toy.sample([*history, assistant]), *toy.suffix])
    step = Step(prompt=history, completion=[assistant], prompt_ids=ids, completion_ids=stop)
    found = answer(stitch_questions([step], [*history, assistant, *new], toy.suffix, **more), toy)
    assert isinstance(found, Refusal)
    return found


def test_media_are_the_reason_where_nothing_matches() -> None:
    assert locate([], [IMAGE]) == Refusal(Reason.MULTIMODAL, "the prompt has media")
    step = example.step()
    assert locate([step], [*step.messages, IMAGE]) == Refusal(Reason.MULTIMODAL, "the conversation has media")
    with pytest.raises(InputError, match=r"^prompt\[0\] must be a message"):
        locate([], [5])  # type: ignore[list-item]  # which is what it says


def test_a_tail_that_depends_on_the_history_is_refused_with_an_explanation() -> None:
    found = refused("tool_changes_opening", [example.user()], example.assistant(), example.user("more"))
    assert found == Refusal(Reason.UNPROVEN_TAIL, f"the tail differs where {OTHER_WORDS}")


def test_a_result_that_quotes_a_call_of_an_earlier_turn_depends_on_the_history() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        example.user(),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        example.user("well?"),
    ]
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    found = refused("repeats_arguments", history, example.assistant(), result)
    assert found == Refusal(Reason.UNPROVEN_TAIL, f"the tail differs where {SAME_ID}")


@pytest.mark.parametrize("content", ["Be kind.", ""])
def test_a_system_message_without_a_trace_after_the_turn_is_refused(content: str) -> None:
    system = {"role": "system", "content": content}
    found = refused("system_first", [example.user()], example.assistant(), system)
    assert found == Refusal(Reason.SWALLOWED, "a system message leaves no trace after the turn")


def test_results_of_several_earlier_turns_are_proven_with_their_calls() -> None:
    """A history in which those calls were made gives the tail, or shows that it depends on them."""
    results = [{"role": "tool", "tool_call_id": name, "content": "7"} for name in "ab"]
    toy, history = BY_NAME["chatml"], [example.user()]
    sampled = [*toy.sample([*history, example.assistant()]), *toy.suffix]
    ids = toy(history, add_generation_prompt=True)
    step = Step(prompt=history, completion=[example.assistant()], prompt_ids=ids, completion_ids=sampled)
    prompt = [*step.messages, *results]
    found = answer(stitch_questions([step], prompt, toy.suffix), toy)
    assert isinstance(found, Stitched)
    assert (
        found.ids.tolist()[-len(found.added) :]
        == toy(prompt, add_generation_prompt=True)[-len(found.added) :]
    )
    quoting = refused("repeats_arguments", history, example.assistant(), *results)
    assert quoting == Refusal(Reason.UNPROVEN_TAIL, f"the tail differs where {SAME_ID}")


def test_an_odd_stop_is_named_with_what_the_template_writes_there() -> None:
    step = example.step(sampled=[900, 77])
    found = answer(stitch_questions([step], example.prompt(step), SUFFIX), example.tokenize)
    assert found == Refusal(Reason.ODD_STOP, f"the turn ended with 77, not ({example.CLOSE},)")


def test_another_close_is_refused_with_an_explanation() -> None:
    step = example.step(sampled=[900, 77])
    found = answer(stitch_questions([step], example.prompt(step), (5, 6)), example.tokenize)
    assert found == Refusal(Reason.CLOSE_MISMATCH, "after the turn the template does not write the suffix")


def test_the_second_half_of_a_stitch_checks_what_it_is_given() -> None:
    step = example.step()
    located = locate([step], example.prompt(step))
    assert isinstance(located, Located)
    with pytest.raises(InputError, match=r"^suffix\[0\] is -1"):
        answer(continue_questions(located, [-1]), example.tokenize)
    wrong: Any = "profile"
    with pytest.raises(InputError, match=r"^profile is 'profile': give a Profile"):
        answer(continue_questions(located, SUFFIX, profile=wrong), example.tokenize)
    both = [answer(one, example.tokenize) for one in (continue_questions(located, SUFFIX), stitched(step))]
    assert both[0] == both[1]


def stitched(step: Step) -> Any:
    return stitch_questions([step], example.prompt(step), SUFFIX, profile=Profile(suffix=SUFFIX))


def recipe(**more: Any) -> Recipe:
    usual: dict[str, Any] = {"place": None, "as_object": False, "past": 0, "mark": (50,), "rest": ()}
    return Recipe(**(usual | {"close": (2,), "closed": 1, "speaks": (1, 9), "cut": False} | more))


@pytest.mark.parametrize(
    ("known", "ids", "bridge"),
    [
        (recipe(), (50, 2, 1, 9), (2, 1, 9)),
        (recipe(), (50, 2, 1, 8), None),
        (recipe(), (50, 3, 1, 9), None),
        (recipe(), (50, 1, 9), None),  # the close must stand before the generation prompt
        (recipe(close=()), (50, 1, 9), (1, 9)),
        (recipe(speaks=()), (50, 2), (2,)),
        (recipe(speaks=(2, 1, 9)), (50, 2, 1, 9), None),  # nor may one be the other
        (recipe(rest=(7,)), (50, 7, 2, 1, 9), (2, 1, 9)),
        (recipe(rest=(7,)), (50, 8, 2, 1, 9), None),
        (recipe(rest=None), (50, 8, 8, 2, 5, 1, 9), (2, 5, 1, 9)),
        (recipe(rest=None, speaks=()), (50, 8, 2), (2,)),
        (recipe(rest=None), (50, 8, 8, 1, 9), None),
        (recipe(rest=None, close=(2, 3)), (50, 2, 8, 2, 3, 1, 9), (2, 3, 1, 9)),
        (recipe(mark=(50, 51)), (50, 51, 2, 1, 9), (2, 1, 9)),
        (recipe(mark=(50, 51)), (51, 50, 2, 1, 9), None),
        (recipe(mark=()), (2, 1, 9), None),
    ],
)
def test_a_bridge_is_recognized_only_as_it_was_shown(
    known: Recipe, ids: tuple[int, ...], bridge: tuple[int, ...] | None
) -> None:
    assert recognize(known, ids) == bridge
