"""A bridge writes what a stitch writes. More knowledge gives fewer refusals, and never another answer."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from hypothesis import given

from tests import oracle
from tests.profiles import tries
from tito_core import (
    Bridge,
    Extension,
    Located,
    Origin,
    Policy,
    Reason,
    Refusal,
    Stitched,
    locate,
    try_stitch,
)
from tito_core.seams.profile import Profile
from tito_core.seams.prove import TOO_MANY
from tito_core.testing.strategies.stitch_input import ANY_INPUT, StitchInput, tidy_stitch_inputs
from tito_core.testing.tails import true_tails
from tito_core.testing.toys import TOYS

STEADY_INPUT = tidy_stitch_inputs(tuple(toy for toy in TOYS if not toy.nondeterministic))
BEFORE_THE_TAIL = {Reason.NO_PREFIX, Reason.NOTHING_NEW, Reason.RENDERED_DIFFERENTLY, Reason.NO_IDS}
"""Refusals of a stitch that nobody can have who knows the turn."""


def found(stitch_input: StitchInput) -> Located | None:
    located = locate(stitch_input.steps, stitch_input.prompt, key=stitch_input.key)
    return located if isinstance(located, Located) and located.match.step.completion.length == 1 else None


def extended(stitch_input: StitchInput, located: Located, *, level: int, spans: bool = False) -> Any:
    """Extend the ids of the located step, knowing nothing else, the turn, or the history too."""
    toy, step, place = stitch_input.toy, located.match.step, located.turn.place
    known: list[Mapping[str, Any]] = [
        {},
        {"turn": located.turn.message},
        {"history": stitch_input.prompt[:place], "sampled": len(step.completion_ids)},
    ]
    bridge = Bridge(toy, toy.stop_ids, suffix=toy.suffix, spans=spans)
    arguments = {name: value for some in known[: level + 1] for name, value in some.items()}
    return bridge.extend(step.ids, located.environment, truncated=step.truncated, **arguments)


@given(STEADY_INPUT)
@tries(4)
def test_a_bridge_that_knows_all_writes_what_a_stitch_writes(stitch_input: StitchInput) -> None:
    located = found(stitch_input)
    if located is None:
        return
    toy = stitch_input.toy
    profile = Profile(suffix=toy.suffix, stop_ids=toy.stop_ids)
    stitched = try_stitch(
        stitch_input.steps, stitch_input.prompt, toy.suffix, toy, key=stitch_input.key, profile=profile
    )
    extension = extended(stitch_input, located, level=2)
    if isinstance(stitched, Refusal):
        assert stitched.reason in BEFORE_THE_TAIL or extension == stitched
    else:
        assert isinstance(extension, Extension)
        assert extension.ids == stitched.ids
        assert extension.added == stitched.added
        assert extension.ledger.mask() == _last_sampled(stitched)
        for name in ("inserted_close", "replaced_stop", "kept_stop"):
            assert getattr(extension, name) == getattr(stitched, name)


def _last_sampled(stitched: Stitched) -> list[int]:
    """Return the mask of the newest turn alone: a bridge knows of no other."""
    start = len(stitched.step.prompt_ids)
    return [int(place >= start and origin is Origin.SAMPLED) for place, origin in enumerate(stitched.ledger)]


@given(STEADY_INPUT)
@tries(4)
def test_more_knowledge_never_changes_an_answer(stitch_input: StitchInput) -> None:
    """Unless the template rejects the real history, so that there is no answer that could be right.

    A tool that is named like the close is refused where the turn is known, and so are a turn that went on
    after a stop, and one that takes more questions than are allowed where its history is known. Where the
    turn is unknown, results are taken to answer its calls.
    """
    located = found(stitch_input)
    matched = 0 if located is None else located.match.step.messages.length
    if located is None or true_tails(stitch_input.toy, stitch_input.prompt, matched) is None:
        return
    step, toy = located.match.step, stitch_input.toy
    if oracle.named_like_stop(step, toy) or not set(toy.stop_ids).isdisjoint(step.completion_ids[:-1]):
        return
    uncalled = located.environment[0]["role"] == "tool" and not located.turn.message.get("tool_calls")
    answers = [extended(stitch_input, located, level=level) for level in range(uncalled, 3)]
    for less, more in pairwise(answers):
        if isinstance(less, Extension) and more != TOO_MANY:
            assert isinstance(more, Extension), more
            assert (more.ids, more.inserted_close) == (less.ids, less.inserted_close)


@given(ANY_INPUT)
@tries(4)
def test_a_bridge_is_refused_or_right_however_little_is_known(stitch_input: StitchInput) -> None:
    located = found(stitch_input)
    if located is None or stitch_input.toy.nondeterministic:
        return
    step = located.match.step
    right = oracle.answers(
        stitch_input.toy,
        [step],
        stitch_input.prompt,
        stitch_input.suffix,
        Policy(),
        step.key,
        stitch_input.toy.stop_ids,
    )
    for level in range(3):
        extension = extended(stitch_input, located, level=level)
        if isinstance(extension, Extension) and right is not None:
            assert extension.ids.tolist() in [one.ids for one in right], level


@given(STEADY_INPUT)
@tries(4)
def test_spans_are_those_of_the_messages(stitch_input: StitchInput) -> None:
    """They follow each other, hold the contents, and leave out the close and the generation prompt."""
    located = found(stitch_input)
    extension = None if located is None else extended(stitch_input, located, level=2, spans=True)
    if not isinstance(extension, Extension) or not isinstance(extension.spans, tuple):
        return
    places = [
        place
        for span in extension.spans
        for place in (span.start, span.content_start, span.content_stop, span.stop)
    ]
    assert places == sorted(places)
    assert places[0] >= len(extension.inserted_close)
    assert places[-1] <= len(extension.added) - extension.generation_prompt
    assert located is not None
    assert len(extension.spans) == len(located.environment)
    for span, message in zip(extension.spans, located.environment, strict=True):
        text = message.get("content")
        written = stitch_input.toy.tokenizer.decode(extension.added[span.content_start : span.content_stop])
        assert not isinstance(text, str) or text.strip().casefold() in written.casefold()
