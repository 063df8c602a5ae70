"""The programs that are compared: each makes the ids of the next prompt, its inputs made outside the clock.

tito's own work is timed with its questions to the tokenizer answered from what was answered before, and once
more with the tokenizer at work. The peers here and those of `benchmarks.peers.graph` tokenize in their time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs

from benchmarks.clock import Work
from benchmarks.history import History, Plain, parsed
from benchmarks.voice import Listening
from tito_core import Message, Step, TokenizeFn, answer, stitch, stitch_questions
from tito_core.seams.profile import Profile
from tito_core.stitch import Stitched

FLOOR = "floor: == and one copy"
LISTS = "tito: lists"
KNOWN = "tito: lists, profile"
SHARED = "tito: Trajectory"
BEST = "tito: Trajectory, profile"
PARSED = "tito: Trajectory, prompt off the wire"
WHOLE = "tito: Trajectory, profile, tokenizing"
SUBTRACTION = "prefix subtraction, tokenizing"
MITO = "MITO: render and tokenize all"

Answer = list[int] | None
Ready = Callable[[TokenizeFn], Any]
"""A stitch of fresh inputs, but for its tokenizer."""


@attrs.frozen
class Program:
    """A way to make the ids of the next prompt."""

    name: str
    prepare: Callable[[History], Work]
    read: Callable[[Any], Answer]
    """What its result amounts to as ids, outside the clock."""

    def answer(self, history: History) -> Answer:
        """Return what it makes of a history."""
        return self.read(self.prepare(history)())


def stitched(result: object) -> Answer:
    """Return the ids of a stitch, None for a refusal."""
    return result.ids.tolist() if isinstance(result, Stitched) else None


def itself(result: Answer) -> Answer:
    """Return ids that are a list already, or None."""
    return result


def floor(history: History) -> Work:
    """Compare all messages that both sides have, and copy the ids once.

    Its inputs are made as those of `lists`: where messages lie in memory makes the same `==` twice as dear.
    """
    steps, prompt = history.unshared(), parsed(history.prompt)
    stored, again = list(steps[-1].messages.peek(slice(None))), prompt[:-1]
    head, rest = list(steps[-1].prompt_ids), list(steps[-1].completion_ids)
    return lambda: (stored == again, head + rest)


def lists(history: History, profile: Profile | None) -> Ready:
    """`stitch` from steps and a prompt that share nothing, to a list."""
    return partial(_stitch, history.unshared(), parsed(history.prompt), history.voice.suffix, profile)


def shared(history: History, profile: Profile | None) -> Ready:
    """Run `stitch_questions` from a trajectory and a prompt that shares its last step, to shared ids."""
    return partial(_stitching, history.trajectory, history.following(), history.voice.suffix, profile)


def off_the_wire(history: History, profile: Profile | None) -> Ready:
    """`stitch_questions` from a trajectory and a prompt that shares nothing with it, to shared ids."""
    return partial(_stitching, history.trajectory, parsed(history.prompt), history.voice.suffix, profile)


def _stitch(
    steps: Sequence[Step],
    prompt: Sequence[Message],
    suffix: tuple[int, ...],
    profile: Profile | None,
    tokenize: TokenizeFn,
) -> list[int] | None:
    return stitch(steps, prompt, suffix, tokenize, profile=profile)


def _stitching(
    steps: Sequence[Step],
    prompt: Sequence[Message],
    suffix: tuple[int, ...],
    profile: Profile | None,
    tokenize: TokenizeFn,
) -> object:
    return answer(stitch_questions(steps, prompt, suffix, profile=profile), tokenize)


def alone(make: Callable[[History, Profile | None], Ready], *, known: bool) -> Callable[[History], Work]:
    """Return what makes a stitch whose questions are answered at once."""

    def prepare(history: History) -> Work:
        profile, listening = history.profile if known else None, Listening(history.voice.tokenize)
        make(history, profile)(listening)
        return partial(make(history, profile), listening.replayed())

    return prepare


def whole(history: History) -> Work:
    """Stitch with the tokenizer in the time."""
    return partial(shared(history, history.profile), history.voice.tokenize)


DUMMY = ({"role": "user", "content": "Hello."}, {"role": "assistant", "content": "It is seven."})


def subtraction(history: History) -> Work:
    """Render a fixed dummy conversation with and without what is new; the difference follows the ids.

    The shorter render is cut after its last stop, which the sampled ids have already. Nothing is matched.
    """
    environment, given = history.prompt[-1:], (history.prompt_ids, history.completion_ids)
    return partial(subtract, history.voice.tokenize, history.voice.stop, environment, *given)


def subtract(
    tokenize: TokenizeFn,
    stop: int,
    environment: Sequence[Plain],
    prompt_ids: list[int],
    completion_ids: list[int],
) -> Answer:
    """Return the ids with the difference after them, None where one render does not begin the other."""
    base = list(tokenize(DUMMY, add_generation_prompt=False))
    longer = list(tokenize([*DUMMY, *environment], add_generation_prompt=True))
    if longer[: len(base)] != base:
        return None
    return prompt_ids + completion_ids + longer[len(base) - base[::-1].index(stop) :]


def mito(history: History) -> Work:
    """Render the whole conversation and tokenize it."""
    prompt, tokenize = parsed(history.prompt), history.voice.tokenize
    return lambda: list(tokenize(prompt, add_generation_prompt=True))


OWN = (
    Program(LISTS, alone(lists, known=False), itself),
    Program(KNOWN, alone(lists, known=True), itself),
    Program(SHARED, alone(shared, known=False), stitched),
    Program(BEST, alone(shared, known=True), stitched),
    Program(PARSED, alone(off_the_wire, known=True), stitched),
    Program(WHOLE, whole, stitched),
    Program(SUBTRACTION, subtraction, itself),
    Program(MITO, mito, itself),
)
"""The programs that need nothing but this package."""
