"""The programs that are compared: each makes the ids of the next prompt, its inputs made outside the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs

from benchmarks.clock import Work
from benchmarks.history import History, Plain, parsed
from tito_core import Profile, Step, Stitched, answer, stitch, stitching

FLOOR = "floor: == and one copy"
LISTS = "tito, lists"
KNOWN = "tito, lists, profile"
SHARED = "tito, Trajectory"
BEST = "tito, Trajectory, profile"
PARSED = "tito, Trajectory, parsed prompt"
SUBTRACTION = "prefix subtraction"
MITO = "MITO: render and tokenize all"

Answer = list[int] | None


@attrs.frozen
class Program:
    """A way to make the ids of the next prompt."""

    name: str
    prepare: Callable[[History], Work]
    read: Callable[[object], Answer]
    """What its result amounts to as ids, outside the clock."""

    def on(self, history: History) -> Callable[[], Work]:
        """Return what makes fresh inputs of a history."""
        return partial(self.prepare, history)


def listed(result: object) -> Answer:
    """Return ids that are a list already, or None."""
    assert result is None or isinstance(result, list)  # noqa: S101  # a program with another result is read otherwise
    return result


def stitched(result: object) -> Answer:
    """Return the ids of a stitch, None for a refusal."""
    return result.ids.tolist() if isinstance(result, Stitched) else None


def floor(history: History) -> Work:
    """Compare all messages that both sides have, and copy the ids once."""
    stored, again = parsed(history.messages), parsed(history.messages)
    ids = [*history.prompt_ids, *history.completion_ids]
    half = len(ids) // 2
    head, rest = ids[:half], ids[half:]
    return lambda: (stored == again, head + rest)


def lists(history: History, *, known: bool) -> Work:
    """`stitch` from steps and a prompt that share nothing, to a list."""
    steps, prompt = history.unshared(), parsed(history.prompt)
    return _stitch(history, steps, prompt, history.profile if known else None)


def _stitch(history: History, steps: Sequence[Step], prompt: list[Plain], profile: Profile | None) -> Work:
    voice = history.voice
    return lambda: stitch(steps, prompt, voice.suffix, voice.tokenize, profile=profile)


def shared(history: History, *, known: bool) -> Work:
    """`stitching` from a trajectory and the prompt that its last step's messages begin, to shared ids."""
    voice, profile = history.voice, history.profile if known else None
    trajectory, prompt = history.trajectory, history.following()
    return lambda: answer(stitching(trajectory, prompt, voice.suffix, profile=profile), voice.tokenize)


def from_wire(history: History) -> Work:
    """`stitching` from a trajectory and a prompt off the wire, to shared ids."""
    voice, prompt = history.voice, parsed(history.prompt)
    work = partial(stitching, history.trajectory, prompt, voice.suffix, profile=history.profile)
    return lambda: answer(work(), voice.tokenize)


DUMMY = ({"role": "user", "content": "Hello."}, {"role": "assistant", "content": "It is seven."})


def subtraction(history: History) -> Work:
    """Render a fixed dummy conversation with and without what is new; the difference follows the ids.

    The shorter render is cut after its last stop, which the sampled ids have already.
    """
    voice, environment = history.voice, history.prompt[-1:]
    prompt_ids, completion_ids = history.prompt_ids, history.completion_ids

    def work() -> Answer:
        base = list(voice.tokenize(DUMMY, add_generation_prompt=False))
        longer = list(voice.tokenize([*DUMMY, *environment], add_generation_prompt=True))
        if longer[: len(base)] != base:
            return None
        kept = len(base) - base[::-1].index(voice.stop)
        return prompt_ids + completion_ids + longer[kept:]

    return work


def mito(history: History) -> Work:
    """Render the whole conversation and tokenize it."""
    prompt, tokenize = parsed(history.prompt), history.voice.tokenize
    return lambda: list(tokenize(prompt, add_generation_prompt=True))


OWN = (
    Program(FLOOR, floor, lambda _: None),
    Program(LISTS, partial(lists, known=False), listed),
    Program(KNOWN, partial(lists, known=True), listed),
    Program(SHARED, partial(shared, known=False), stitched),
    Program(BEST, partial(shared, known=True), stitched),
    Program(PARSED, from_wire, stitched),
    Program(SUBTRACTION, subtraction, listed),
    Program(MITO, mito, listed),
)
"""The programs that need nothing but this package, the floor first."""
