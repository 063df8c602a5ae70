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
from tito_core.seams.experiments import SAME_ID
from tito_core.seams.profile import Profile
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
