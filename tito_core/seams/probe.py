"""Probe a chat template: ask it everything that a profile holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..ids import checked
from ..questions import Questions, TokenizeFn, answer
from .case import BEFORE, TurnKind
from .certify import certify_questions
from .facts import facts_questions
from .profile import Case, Profile
from .suffix import suffix_questions

AFTER_ANSWER = (("user",), ("user+",), ("system",), ("system", "user"), ("assistant", "user"))
AFTER_CALL = (("tool",), ("tool", "user"), ("tool", "system"))
AFTER_CALLS = (("tool+",), ("tool+", "user"), ("tool",))
CONTENTS = ("text", "empty", "null", "absent")


def kinds() -> Iterator[tuple[TurnKind, tuple[str, ...]]]:
    """Yield the usual kinds of turns, each with the shapes that usually follow."""
    for before in BEFORE:
        for reasoning in (False, True):
            yield from _shaped(AFTER_ANSWER, before=before, reasoning=reasoning, calls=0, contents=("text",))
            yield from _shaped(AFTER_CALL, before=before, reasoning=reasoning, calls=1, contents=CONTENTS)
            yield from _shaped(AFTER_CALLS, before=before, reasoning=reasoning, calls=2, contents=CONTENTS)


def _shaped(
    shapes: Iterable[tuple[str, ...]], *, before: str, reasoning: bool, calls: int, contents: Iterable[str]
) -> Iterator[tuple[TurnKind, tuple[str, ...]]]:
    for content in contents:
        kind = TurnKind(before=before, reasoning=reasoning, calls=calls, content=content)
        for shape in shapes:
            yield kind, shape


def probe(tokenize_fn: TokenizeFn, stop_ids: Sequence[int] = ()) -> Profile:
    """Return the profile of a template with all usual cases; takes some thousand short renders.

    `tokenize_fn` is that of `stitch`; `stop_ids` are the ids that end a turn, from the model's generation
    config. Raises `InputError` if the template loses an assistant's content, `TokenizeError` if
    `tokenize_fn` returns something other than ids, and what it raises.
    """
    return answer(probe_questions(stop_ids), tokenize_fn)


def probe_questions(stop_ids: Sequence[int] = (), *, cases: bool = True) -> Questions[Profile]:
    """Ask for a profile. Without `cases`, only for what every case needs: a few dozen renders.

    `stop_ids` are those of `probe`.
    """
    stops = checked(stop_ids, "stop_ids")  # before anything is asked
    suffix = yield from suffix_questions()
    profile = Profile(suffix=suffix, stop_ids=stops, facts=(yield from facts_questions(suffix)))
    found: list[Case] = []
    for kind, shape in kinds() if cases else ():
        found.append((yield from certify_questions(kind, shape, suffix, profile.stop_ids)))
    return profile.then(*found)
