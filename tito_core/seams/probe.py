"""Probe a chat template: ask it what every case needs, and name the cases that conversations usually have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from ..ids import checked
from ..questions import Questions, TokenizeFn, answer, in_parts, relayed
from .case import CONTENTS, TurnKind
from .facts import facts_questions
from .profile import Profile
from .suffix import Form, close_questions, form_questions
from .turn import BEFORE

AFTER_ANSWER = (("user",), ("user+",), ("system",), ("system", "user"), ("assistant", "user"))
AFTER_CALL = (("tool",), ("tool", "user"), ("tool", "system"))
AFTER_CALLS = (("tool+",), ("tool+", "user"), ("tool",))


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
    """Return the profile of a template, without cases; takes some sixty short renders.

    `tokenize_fn` is that of `stitch`; `stop_ids` are the ids that end a turn, from the model's generation
    config. A `GrowingProfile` certifies the cases that conversations have. Raises `InputError` if the
    template loses an assistant's content, `TokenizeError` if `tokenize_fn` returns something other than ids,
    and what it raises.
    """
    return answer(probe_questions(stop_ids), tokenize_fn)


def probe_questions(stop_ids: Sequence[int] = ()) -> Questions[Profile]:
    """Ask for a profile without cases. `stop_ids` are those of `probe`."""
    stops = checked(stop_ids, "stop_ids")  # before anything is asked
    form = yield from form_questions()
    profile = yield from _bare_profile(form, stops)
    return attrs.evolve(profile, facts=(yield from relayed(facts_questions(profile.suffix), form)))


def bare_profile_questions(stop_ids: Sequence[int] = ()) -> Questions[Profile]:
    """Ask for a profile that knows how turns are closed, and nothing else."""
    return (yield from _bare_profile((yield from form_questions()), checked(stop_ids, "stop_ids")))


def _bare_profile(form: Form, stops: tuple[int, ...]) -> Questions[Profile]:
    suffix = yield from relayed(close_questions(), form)
    return Profile(suffix=suffix, stop_ids=stops, parts=form is in_parts)
