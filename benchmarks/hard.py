"""Histories that are not a line: branches, and steps that nearly match.

The prompt always comes off the wire, sharing no object with a step. Each shape is measured beside the floor
of comparing its messages once with `==` and copying the ids.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from benchmarks.clock import Work
from benchmarks.history import History, parsed
from tito_core import Messages, Step, Trajectory, answer, stitch_questions

OTHER = {"role": "assistant", "content": "Something else was said here."}


@attrs.frozen
class Shape:
    """Steps made from a history, and whether one of them is continued."""

    name: str
    made: Callable[[History], tuple[Trajectory | list[Step], int | None]]
    """The steps, and the place of the one that the prompt continues, None where there is none."""

    def work(self, history: History) -> Work:
        """Return the stitch to be measured."""
        steps, _ = self.made(history)
        voice, prompt = history.voice, parsed(history.prompt)
        return lambda: answer(
            stitch_questions(steps, prompt, voice.suffix, profile=history.profile), voice.tokenize
        )


def branching(history: History) -> tuple[Trajectory, int]:
    """Return every step with a sibling after it that was sampled from the same prompt."""
    made = Trajectory()
    for step in history.trajectory:
        made = made.append(step).append(_other(step.prompt, step, OTHER))
    return made, len(made) - 2


def last_differs(history: History) -> tuple[Trajectory, None]:
    """Return steps of every length that are like the prompt but for their last message."""
    return Trajectory(_other(step.prompt, step, OTHER) for step in history.trajectory), None


def equally_long(history: History) -> tuple[list[Step], int]:
    """Return as many steps as there are turns, all as long as the history; the oldest is continued."""
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
    """Return the ids of the step that a plain comparison finds, longest and latest first."""
    steps, _ = shape.made(history)
    prompt = history.prompt
    found = [
        (step.messages.length, number)
        for number, step in enumerate(steps)
        if step.messages.length < len(prompt)
        and list(step.messages[-1:]) == prompt[step.messages.length - 1 : step.messages.length]
        and list(step.messages) == prompt[: step.messages.length]
    ]
    return steps[max(found)[1]].ids.tolist() if found else None
