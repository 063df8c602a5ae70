"""What a stitched prompt says about itself, and the step that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.core import example
from tito_core import (
    InputError,
    Located,
    Message,
    Messages,
    Reason,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    Trajectory,
    answer,
    locate,
    stitch_questions,
)
from tito_core.seams.case import TurnKind, case_of

SUFFIX = (example.CLOSE,)


def stitched(step: Step, **more: Any) -> Stitched:
    found = answer(stitch_questions([step], example.prompt(step), SUFFIX, **more), example.tokenize)
    assert isinstance(found, Stitched)
    return found


def test_a_stitched_prompt_says_where_all_of_it_comes_from() -> None:
    step = example.step(sampled=[900], truncated=True)
    found = stitched(step)
    bridge = (example.CLOSE, *example.tokenize([example.user("more")], add_generation_prompt=True))
    assert (found.added, found.inserted_close) == (bridge, SUFFIX)
    assert found.environment == [example.user("more")]
    spans = [(span.origin.name, span.stop - span.start) for span in found.ledger.spans]
    assert spans == [
        ("PROMPT", 7),
        ("SAMPLED", 1),
        ("INSERTED_CLOSE", 1),
        ("ENVIRONMENT", 7),
        ("GENERATION_PROMPT", 2),
    ]
    assert (found.replaced_stop, found.kept_stop, found.forgiven) == (None, None, frozenset())
    assert found.generation_prompt == 2


def test_a_stitched_prompt_is_printed_with_its_public_attributes_only() -> None:
    text = repr(stitched(example.step()))
    assert text.startswith("Stitched(ids=")
    assert "messages=" not in text


def test_the_next_step_holds_what_was_sampled_and_how_it_was_rendered() -> None:
    found = stitched(example.step(key="k"), key="k")
    step = found.then(completion=[example.assistant("b")], completion_ids=[905, 2], logprobs=[-0.5, None])
    assert (step.key, step.truncated, step.logprobs) == ("k", False, (-0.5, None))
    assert step.prompt_ids == found.ids
    assert step.prompt_ledger == found.ledger
    assert step.messages == [*example.prompt(example.step()), example.assistant("b")]
    assert step.ids.extends(found.step.ids)
    cut = found.then(completion=[example.assistant("b")], completion_ids=[905], truncated=True)
    assert (cut.truncated, cut.logprobs, cut.stop) == (True, None, None)
    with pytest.raises(InputError, match=r"^completion_ids\[1\] is -1"):
        found.then(completion=[example.assistant("b")], completion_ids=[905, -1])


@pytest.mark.parametrize("shared", [False, True])
def test_the_next_step_shares_the_messages_of_the_one_that_it_continues(shared: bool) -> None:
    """A prompt may tell them otherwise; what was sampled goes with what was said then."""
    step = example.step([example.user("a")])
    again = [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        example.assistant(),
        example.user("more"),
    ]
    prompt = Messages.of(again) if shared else again
    found = answer(stitch_questions([step], prompt, SUFFIX), example.tokenize)
    assert isinstance(found, Stitched)
    assert found.forgiven
    after = found.then(completion=[example.assistant("b")], completion_ids=[905, example.CLOSE])
    assert after.prompt.extends(step.messages)
    assert list(after.messages) == [
        example.user("a"),
        example.assistant(),
        example.user("more"),
        example.assistant("b"),
    ]


def named(trajectory: Any, messages: Any, **more: Any) -> Any:
    located = locate(trajectory, messages, **more)
    return case_of(located.turn, located.environment) if isinstance(located, Located) else located.reason


def test_the_next_prompt_has_a_name_where_it_can_be_stitched() -> None:
    step = example.step(key="k")
    kind = TurnKind(before="user", reasoning=False, calls=0, content="text")
    assert named([step], example.prompt(step), key="k") == (kind, ("user",))
    assert named([step], example.prompt(step), key="other") is Reason.RENDERED_DIFFERENTLY
    assert named([], example.prompt(step)) is Reason.NO_PREFIX
    assert named([step], [*step.messages, {"role": "critic", "content": "x"}], key="k") is None


def test_the_role_before_a_turn_is_part_of_its_name() -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    step = example.step([example.user(), result])
    found = named(Trajectory([step]), step.messages.then([example.user("more")]))
    assert found is not None
    assert found[0].before == "tool"


def test_nothing_matched_is_counted() -> None:
    steps = [example.step(), example.step()]
    found = answer(
        stitch_questions(steps, [example.user("x"), example.assistant()], SUFFIX), example.tokenize
    )
    assert found == Refusal(Reason.NO_PREFIX, "none of 2 steps begins these 2 messages")


def test_invalid_arguments_of_a_stitch_are_named_before_matching() -> None:
    with pytest.raises(InputError, match=r"^suffix\[0\] is -1"):
        next(stitch_questions([], [], [-1]))
    wrong: Any = {}
    with pytest.raises(InputError, match=r"^profile is a dict: give a Profile"):
        next(stitch_questions([], [], SUFFIX, profile=wrong))


def never_silent(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    if not add_generation_prompt:
        raise TemplateRefused("the model always speaks")
    return example.tokenize(messages, add_generation_prompt=True)


def announcing(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write in front whether the model is to speak."""
    return [
        98 + add_generation_prompt,
        *example.tokenize(messages, add_generation_prompt=add_generation_prompt),
    ]


@pytest.mark.parametrize("tokenize", [never_silent, announcing])
def test_an_unknown_generation_prompt_counts_as_environment(tokenize: Any) -> None:
    step = example.step()
    found = answer(stitch_questions([step], example.prompt(step), SUFFIX), tokenize)
    assert isinstance(found, Stitched)
    runs = [(span.origin.name, span.stop - span.start) for span in found.ledger.spans]
    assert runs == [("PROMPT", 7), ("SAMPLED", 3), ("ENVIRONMENT", 9)]


def test_a_different_close_without_a_generation_prompt_keeps_the_ledger_whole() -> None:
    """Then not an id after the turn stands there both times; the close is a close all the same."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids += example.tokenize([message], add_generation_prompt=False)
            other = message["role"] == "assistant" and not add_generation_prompt
            ids[-1] = 4 if other else example.CLOSE
        return ids + [example.OPEN, example.ROLES["assistant"]] * add_generation_prompt

    step = example.step(sampled=[900], truncated=True)
    found = answer(stitch_questions([step], example.prompt(step), SUFFIX), tokenize)
    assert isinstance(found, Stitched)
    runs = [(span.origin.name, span.stop - span.start) for span in found.ledger.spans]
    assert runs[:3] == [("PROMPT", 7), ("SAMPLED", 1), ("INSERTED_CLOSE", 1)]
    assert [count for _, count in runs[3:]] == [9]  # whatever they count as, they count once
    assert found.inserted_close == SUFFIX
