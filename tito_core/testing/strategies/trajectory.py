"""Trajectories that branch in each way in which steps can share their history, or share nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ...policy import OddStop, Policy
from ...sampling_mask import SamplingMask
from ...step import Step
from ...stitch import Stitched, try_stitch
from ...trajectory import Trajectory
from ..toys import toy_named

CHATML = toy_named("chatml")
CLOSE, *_ = CHATML.suffix
ODD_STOP = 3
"""The id of an end-of-text token, which is not what closes a turn."""
KINDS = ("turn", "turn", "retry", "lists", "odd stop", "absent base", "root", "empty")
CONTENTS: tuple[Any, ...] = ("b", "", [{"type": "text", "text": "b"}], None)
LOGPROBS = (None, -0.5, -1)


def masked(step: Step, sampled: Sequence[int]) -> SamplingMask | None:
    """Return a mask for what is sampled after a step that has one: a conversation has masks, or none."""
    return step.sampling_mask and SamplingMask.of([*[None] * (len(sampled) - 1), [sampled[-1], 800]])


def longer(step: Step, kind: str, number: int, content: Any) -> Step:
    """Return a step that continues another one in the way that `kind` names."""
    prompt = [*step.messages, {"role": "user", "content": f"question {number}"}]
    completion = [{"role": "assistant", "content": content}]
    sampled = [900 + number, ODD_STOP if kind == "odd stop" else CLOSE]
    logprobs = [LOGPROBS[(number + place) % len(LOGPROBS)] for place in range(len(sampled))]
    policy = Policy(odd_stop=OddStop.REPLACE)
    found = try_stitch([step], prompt, CHATML.suffix, CHATML, policy=policy)
    if not isinstance(found, Stitched) or kind == "lists":
        ids = [*step.ids, *CHATML.encode(str(number))]
        return Step(
            prompt=prompt,
            completion=completion,
            prompt_ids=ids,
            completion_ids=sampled,
            key="k",
            sampling_mask=masked(step, sampled),
        )
    return found.then(
        completion=completion,
        completion_ids=sampled,
        logprobs=logprobs,
        truncated=not (number + 1) % 5,
        sampling_mask=masked(step, sampled),
    )


def _root(number: int, place: int) -> Step:
    """Return a step with sampled ids that its text does not have when it is rendered again."""
    prompt = [{"role": "user", "content": f"root {number}"}]
    return Step(
        prompt=prompt,
        completion=[{"role": "assistant", "content": "hello"}],
        prompt_ids=CHATML(prompt, add_generation_prompt=True),
        completion_ids=[900, 901, CLOSE],
        sampling_mask=SamplingMask.of([[900, 1], None, [CLOSE]]) if place % 2 else None,
    )


def grown(trajectory: Trajectory, kind: str, place: int, content: Any) -> Trajectory:
    """Return a trajectory with one step more, which has to do with the step at `place`."""
    number = len(trajectory)
    if not trajectory or kind == "root":
        return trajectory.append(_root(number, place))
    if kind == "empty":
        return trajectory.append(Step(prompt=[], completion=[], prompt_ids=[], completion_ids=[number]))
    step = trajectory[place % number]
    if kind == "retry":
        return trajectory.append(
            Step(
                prompt=step.prompt,
                completion=[],
                prompt_ids=step.prompt_ids,
                completion_ids=[number],
                prompt_ledger=step.prompt_ledger,
                sampling_mask=masked(step, [number]),
            )
        )
    if kind == "absent base":  # two branches of a step that is not in the trajectory
        absent = longer(step, "turn", number, "absent")
        branches = [longer(absent, "turn", number + more, content) for more in (1, 2)]
        return trajectory.append(branches[0]).append(branches[1])
    return trajectory.append(longer(step, kind, number, content))


def built(choices: Sequence[tuple[str, int, Any]]) -> Trajectory:
    """Return the trajectory that choices of kinds, places and contents describe."""
    trajectory = Trajectory()
    for kind, place, content in choices:
        trajectory = grown(trajectory, kind, place, content)
    return trajectory


@st.composite
def trajectories(draw: DrawFn, least: int = 0) -> Trajectory:
    """Draw a trajectory that branches in each way in which steps can share their history.

    Args:
        least: The least number of steps.
    """
    return built(draw(st.lists(CHOICES, min_size=least, max_size=7)))


CHOICES: SearchStrategy[tuple[str, int, Any]] = st.tuples(
    st.sampled_from(KINDS), st.integers(0, 9), st.sampled_from(CONTENTS)
)
