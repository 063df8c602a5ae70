"""The programs that are compared. Each returns the ids of the next prompt; its inputs are built untimed.

tito's own work is timed with recorded answers of the tokenizer, and once more with the real tokenizer. The
other programs, here and in `benchmarks.peers.graph`, tokenize within their time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import attrs

from benchmarks.clock import Work
from benchmarks.history import History, Plain, parsed
from benchmarks.renderer import RecordingTokenize
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
StitchCall = Callable[[TokenizeFn], Any]
"""A stitch of fresh inputs that still needs a tokenizer."""


@attrs.frozen
class Program:
    """A way to build the ids of the next prompt.

    Attributes:
        name: Label of the tables.
        prepare: Builds fresh inputs of a history, and returns the work to time.
        read: Converts the result of the work to a list of ids; not timed.
    """

    name: str
    prepare: Callable[[History], Work]
    read: Callable[[Any], Answer]

    def answer(self, history: History) -> Answer:
        """Return the ids of the next prompt of a history."""
        return self.read(self.prepare(history)())


def stitched(result: object) -> Answer:
    """Return the ids of a stitch, None for a refusal."""
    return result.ids.tolist() if isinstance(result, Stitched) else None


def itself(result: Answer) -> Answer:
    """Return the result unchanged: it is a list or None."""
    return result


def floor(history: History) -> Work:
    """Compare all stored messages with the prompt, and copy the ids once.

    Its inputs are built like those of `lists`, because the memory layout of the messages can double the time
    of the same `==`.
    """
    steps, prompt = history.unshared(), parsed(history.prompt)
    stored, again = list(chain.from_iterable(steps[-1].messages.parts())), prompt[:-1]
    head, rest = list(steps[-1].prompt_ids), list(steps[-1].completion_ids)
    return lambda: (stored == again, head + rest)


def lists(history: History, profile: Profile | None) -> StitchCall:
    """Call `stitch` on steps and a prompt that share nothing; the result is a list."""
    return partial(_stitch, history.unshared(), parsed(history.prompt), history.renderer.suffix, profile)


def shared(history: History, profile: Profile | None) -> StitchCall:
    """Run `stitch_questions` on a trajectory and a prompt that shares its messages; the ids are shared."""
    return partial(_stitching, history.trajectory, history.following(), history.renderer.suffix, profile)


def off_the_wire(history: History, profile: Profile | None) -> StitchCall:
    """Run `stitch_questions` on a trajectory and a prompt parsed from JSON; the ids are shared."""
    return partial(_stitching, history.trajectory, parsed(history.prompt), history.renderer.suffix, profile)


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


def alone(make: Callable[[History, Profile | None], StitchCall], *, known: bool) -> Callable[[History], Work]:
    """Return a stitch with recorded answers of the tokenizer; with `known`, the profile is given too."""

    def prepare(history: History) -> Work:
        profile, recording = history.profile if known else None, RecordingTokenize(history.renderer.tokenize)
        make(history, profile)(recording)
        return partial(make(history, profile), recording.replayed())

    return prepare


def whole(history: History) -> Work:
    """Stitch with the real tokenizer."""
    return partial(shared(history, history.profile), history.renderer.tokenize)


DUMMY = ({"role": "user", "content": "Hello."}, {"role": "assistant", "content": "It is seven."})


def subtraction(history: History) -> Work:
    """Render a fixed conversation with and without the new messages, and append the difference to the ids.

    The shorter render is cut after its last stop token, which the sampled ids already have. No messages are
    matched.
    """
    environment, given = history.prompt[-1:], (history.prompt_ids, history.completion_ids)
    return partial(subtract, history.renderer.tokenize, history.renderer.stop, environment, *given)


def subtract(
    tokenize: TokenizeFn,
    stop: int,
    environment: Sequence[Plain],
    prompt_ids: list[int],
    completion_ids: list[int],
) -> Answer:
    """Return the ids with the difference appended; None if one render is not a prefix of the other."""
    base = list(tokenize([*DUMMY], add_generation_prompt=False))
    longer = list(tokenize([*DUMMY, *environment], add_generation_prompt=True))
    if longer[: len(base)] != base:
        return None
    return prompt_ids + completion_ids + longer[len(base) - base[::-1].index(stop) :]


def mito(history: History) -> Work:
    """Render the whole conversation and tokenize it."""
    prompt, tokenize = parsed(history.prompt), history.renderer.tokenize
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
"""The programs that need no other package."""
