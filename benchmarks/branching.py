"""Histories that branch, and histories whose steps nearly match the prompt.

The prompt is always parsed from JSON, so it shares no object with a step. Each shape is measured next to the
floor: compare the messages once with `==` and copy the ids once.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from benchmarks.clock import Work
from benchmarks.history import History, parsed
from tito_core import Messages, Step, Trajectory, answer, stitch_questions

OTHER = {"role": "assistant", "content": "Something else was said here."}
"""A reply that no step of the history has."""


@attrs.frozen
class Shape:
    """A way to build steps from a history.

    Attributes:
        name: Label of the tables.
        build: Returns the steps, and the index of the step that the prompt continues (None: no step).
    """

    name: str
    build: Callable[[History], tuple[Trajectory | list[Step], int | None]]

    def work(self, history: History) -> Work:
        """Return the stitch that is measured."""
        steps, _ = self.build(history)
        renderer, prompt = history.renderer, parsed(history.prompt)
        return lambda: answer(
            stitch_questions(steps, prompt, renderer.suffix, profile=history.profile), renderer.tokenize
        )


def branching(history: History) -> tuple[Trajectory, int]:
    """Return every step, each followed by a sibling sampled from the same prompt."""
    build = Trajectory()
    for step in history.trajectory:
        build = build.append(step).append(_other(step.prompt, step, OTHER))
    return build, len(build) - 2


def last_differs(history: History) -> tuple[Trajectory, None]:
    """Return steps of every length that differ from the prompt in their last message only."""
    return Trajectory(_other(step.prompt, step, OTHER) for step in history.trajectory), None


def equally_long(history: History) -> tuple[list[Step], int]:
    """Return one step per turn, all as long as the history. The prompt continues the first."""
    last = history.last
    others = [
        _other(last.prompt, last, {"role": "assistant", "content": f"Something else: {number}."})
        for number in range(history.turns - 1)
    ]
    return [last, *others], 0


def _other(prompt: Messages, step: Step, reply: dict[str, str]) -> Step:
    """Return a step with the same prompt and another reply."""
    return Step(
        prompt=prompt,
        completion=[reply],
        prompt_ids=step.prompt_ids,
        completion_ids=[7, step.completion_ids[-1]],
        prompt_ledger=step.prompt_ledger,
    )


SHAPES = (
    Shape("branching: each turn sampled twice", branching),
    Shape("adversarial: all differ in their last message", last_differs),
    Shape("adversarial: all of one length", equally_long),
)


def expected(shape: Shape, history: History) -> list[int] | None:
    """Return the ids of the step that a plain comparison chooses: the longest, and of equals the latest."""
    steps, _ = shape.build(history)
    prompt = history.prompt
    matching = [
        (step.messages.length, number)
        for number, step in enumerate(steps)
        if step.messages.length < len(prompt)
        and list(step.messages[-1:]) == prompt[step.messages.length - 1 : step.messages.length]
        and list(step.messages) == prompt[: step.messages.length]
    ]
    return steps[max(matching)[1]].ids.tolist() if matching else None
