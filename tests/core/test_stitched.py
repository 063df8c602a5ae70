"""What a stitched prompt says about itself, and the step that it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import talk
from tito_core import (
    InputError,
    Located,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    Trajectory,
    answer,
    locate,
    stitching,
)
from tito_core.kind import Kind
from tito_core.stitch import overlap

SUFFIX = (talk.CLOSE,)


def stitched(step: Step, **more: Any) -> Stitched:
    found = answer(stitching([step], talk.prompt(step), SUFFIX, **more), talk.tokenize)
    assert isinstance(found, Stitched)
    return found


def test_a_stitched_prompt_says_where_all_of_it_comes_from() -> None:
    step = talk.step(sampled=[900], truncated=True)
    found = stitched(step)
    bridge = (talk.CLOSE, *talk.tokenize([talk.user("more")], add_generation_prompt=True))
    assert (found.bridge, found.inserted_close) == (bridge, SUFFIX)
    assert found.environment == [talk.user("more")]
    spans = [(span.origin.name, span.stop - span.start) for span in found.ledger.spans]
    assert spans == [
        ("PROMPT", 7),
        ("SAMPLED", 1),
        ("INSERTED_CLOSE", 1),
        ("ENVIRONMENT", 7),
        ("GENERATION_PROMPT", 2),
    ]
    assert (found.replaced_stop, found.kept_stop, found.forgiven) == (None, None, frozenset())


def test_the_next_step_holds_what_was_sampled_and_how_it_was_rendered() -> None:
    found = stitched(talk.step(key="k"), key="k")
    step = found.then(completion=[talk.said("b")], completion_ids=[905, 2], logprobs=[-0.5, None])
    assert (step.key, step.truncated, step.logprobs) == ("k", False, (-0.5, None))
    assert step.prompt_ids == found.ids
    assert step.prompt_ledger == found.ledger
    assert step.messages == [*talk.prompt(talk.step()), talk.said("b")]
    assert step.ids.extends(found.step.ids)
    cut = found.then(completion=[talk.said("b")], completion_ids=[905], truncated=True)
    assert (cut.truncated, cut.logprobs, cut.stop) == (True, None, None)
    with pytest.raises(InputError, match=r"^completion_ids\[1\] is -1"):
        found.then(completion=[talk.said("b")], completion_ids=[905, -1])


@pytest.mark.parametrize(
    ("completion", "bridge", "suffix", "count"),
    [
        ([5, 7, 7], [7, 7, 1], [7, 7], 2),
        ([5, 7], [7, 7, 1], [7, 7], 1),
        ([5], [7, 7, 1], [7, 7], 0),
        ([], [7, 1], [7], 0),
        ([5, 7, 1], [7, 1, 9], [7], 2),  # the opener that follows was sampled with the close
        ([5, 7, 1, 9], [7, 1, 9], [7], 0),  # not more than one id of it
        ([5, 8], [8, 1], [], 1),
        ([5, 8, 1], [8, 1], [], 0),
        ([5, 8], [8, 1], [7], 1),  # the bridge begins otherwise: its first id counts
        ([5, 8, 1], [8, 1], [7], 0),
        ([7, 1, 7], [7, 1, 7, 2], [7, 1, 7], 3),  # it overlaps itself: the largest counts
    ],
)
def test_an_overlap_is_the_largest(
    completion: list[int], bridge: list[int], suffix: list[int], count: int
) -> None:
    assert overlap(completion, bridge, suffix) == count


def named(trajectory: Any, messages: Any, **more: Any) -> Any:
    located = locate(trajectory, messages, **more)
    return located.case if isinstance(located, Located) else located.reason


def test_the_next_prompt_has_a_name_where_it_can_be_stitched() -> None:
    step = talk.step(key="k")
    kind = Kind(before="user", reasoning=False, calls=0, content="text")
    assert named([step], talk.prompt(step), key="k") == (kind, ("user",))
    assert named([step], talk.prompt(step), key="other") is Reason.RENDERED_DIFFERENTLY
    assert named([], talk.prompt(step)) is Reason.NO_PREFIX
    assert named([step], [*step.messages, {"role": "critic", "content": "x"}], key="k") is None


def test_the_role_before_a_turn_is_part_of_its_name() -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    step = talk.step([talk.user(), result])
    found = named(Trajectory([step]), step.messages.then([talk.user("more")]))
    assert found is not None
    assert found[0].before == "tool"


def test_a_policy_is_a_policy() -> None:
    with pytest.raises(InputError, match=r"^policy is 'keep': give a Policy"):
        answer(stitching([], [], SUFFIX, policy="keep"), talk.tokenize)  # type: ignore[arg-type]  # a guess
    assert isinstance(answer(stitching([], [], SUFFIX, policy=Policy()), talk.tokenize), Refusal)


def test_nothing_matched_is_counted() -> None:
    steps = [talk.step(), talk.step()]
    found = answer(stitching(steps, [talk.user("x"), talk.said()], SUFFIX), talk.tokenize)
    assert found == Refusal(Reason.NO_PREFIX, "none of 2 steps begins these 2 messages")
