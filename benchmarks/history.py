"""Histories to be measured with: made turn by turn as a rollout makes them, of texts drawn from a seed.

What was sampled is what a tokenizer would make of the text, so that programs that render everything again
have the same right answer as those that keep the ids.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import attrs

from benchmarks.voice import Remembering, Voice
from tito_core import Located, Messages, Step, Trajectory, answer, locate, stitch_questions
from tito_core.seams.case import case_of
from tito_core.seams.certify import certify_questions
from tito_core.seams.probe import probe_questions
from tito_core.seams.profile import Profile
from tito_core.stitch import Stitched

Plain = dict[str, Any]
WORDS = ("perhaps", "the", "open", "window", "and", "a", "cold", "river", "tomorrow", "again", "with", "snow")
POOL = 16
"""Different texts of each role; their order is drawn."""


def parsed(messages: Sequence[Plain]) -> list[Plain]:
    """Return messages as they come off the wire: no object is shared with anything."""
    found: list[Plain] = json.loads(json.dumps(list(messages)))
    return found


@attrs.frozen(slots=False)
class History:
    """A conversation of some turns, and the user message that comes next."""

    voice: Voice
    turns: int
    tokens: int
    """In each message, about."""
    profile: Profile = attrs.field(repr=False)
    messages: list[Plain] = attrs.field(repr=False)
    """A user's and an assistant's in turn."""
    trajectory: Trajectory = attrs.field(repr=False)

    @property
    def prompt(self) -> list[Plain]:
        """The whole of the next prompt."""
        return [*self.messages, self.messages[0]]

    @property
    def last(self) -> Step:
        """The step that the prompt continues."""
        return self.trajectory[-1]

    @cached_property
    def prompt_ids(self) -> list[int]:
        """The ids that the last call saw."""
        return self.last.prompt_ids.tolist()

    @cached_property
    def completion_ids(self) -> list[int]:
        """The ids that the last call sampled."""
        return self.last.completion_ids.tolist()

    def unshared(self) -> list[Step]:
        """Return the last two steps, as lists that share nothing; all would hold the square of the turns."""
        return [
            Step(
                prompt=parsed(self.messages[: step.prompt.length]),
                completion=parsed(list(step.completion)),
                prompt_ids=step.prompt_ids.tolist(),
                completion_ids=step.completion_ids.tolist(),
            )
            for step in self.trajectory[-2:]
        ]

    def following(self) -> Messages:
        """Return the next prompt as a rollout that keeps its steps has it."""
        return self.last.messages.then(self.prompt[-1:])


def texts(tokens: int, seed: int) -> list[str]:
    """Return texts of so many words."""
    dice = random.Random(seed)  # noqa: S311  # texts to be measured with, not secrets
    return [" ".join(dice.choices(WORDS, k=tokens)) for _ in range(POOL)]


def profiled(voice: Voice) -> Profile:
    """Return what is known of the template for a user's message after an answer, as a rollout learns it."""
    profile = answer(probe_questions((voice.stop,), cases=False), voice.tokenize)
    step = Step(
        prompt=[{"role": "user", "content": "a"}],
        completion=[{"role": "assistant", "content": "b"}],
        prompt_ids=[1],
        completion_ids=[voice.stop],
    )
    located = locate([step], [*step.messages, {"role": "user", "content": "c"}])
    assert isinstance(located, Located)  # noqa: S101  # this is the most usual of all cases
    case = case_of(located.turn, located.environment)
    assert case is not None  # noqa: S101  # and has a name
    return profile.then(answer(certify_questions(*case, voice.suffix, profile.stop_ids), voice.tokenize))


def histories(voice: Voice, sizes: Sequence[int], tokens: int) -> list[History]:
    """Return a history for each number of turns, each going on from the shorter ones."""
    profile, tokenize = profiled(voice), Remembering(voice.tokenize)
    dice = random.Random(7)  # noqa: S311  # an order to be measured with, no secret
    asked, said = texts(tokens, 1), texts(tokens, 2)
    spoken = {text: voice.said(text) for text in said}
    messages, trajectory, found = list[Plain](), Trajectory(), list[History]()
    for turn in range(max(sizes)):
        question = {"role": "user", "content": asked[0] if turn == 0 else dice.choice(asked)}
        reply = {"role": "assistant", "content": dice.choice(said)}
        trajectory = trajectory.append(
            _step(voice, trajectory, profile, tokenize, question, reply, spoken[reply["content"]])
        )
        messages += [question, reply]
        if turn + 1 in sizes:
            found.append(History(voice, turn + 1, tokens, profile, list(messages), trajectory))
    return found


def _step(
    voice: Voice,
    trajectory: Trajectory,
    profile: Profile,
    tokenize: Remembering,
    question: Plain,
    reply: Plain,
    ids: list[int],
) -> Step:
    if not trajectory:
        prompt_ids = tokenize([question], add_generation_prompt=True)
        return Step(prompt=[question], completion=[reply], prompt_ids=prompt_ids, completion_ids=ids)
    prompt = trajectory[-1].messages.then([question])
    stitched = answer(stitch_questions(trajectory, prompt, voice.suffix, profile=profile), tokenize)
    assert isinstance(stitched, Stitched), stitched  # noqa: S101  # what follows measures that it is
    return stitched.then(completion=[reply], completion_ids=ids)
