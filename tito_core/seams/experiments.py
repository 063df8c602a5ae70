"""The experiments that show what a tail depends on: histories in which it must be the same, each with a name.

The name of the one that failed is the detail of a refusal, and the advice of `tito lint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import attrs

from ..message import as_id, called_ids
from .history import LAST, NO_KEY, OF_SYSTEM, ON, SWITCHED, Context, Past, Turns, akin_histories
from .turn import BEFORE, MOST_SHOWN, Environment, SampledTurn

OTHER_WORDS = "the texts before the turn are others"
LOOP_GOES_ON = "other messages follow the last tool result"
SWITCHED_ON = "an earlier message switches reasoning on"
SAME_ID = "an earlier call has the id of a later one"
NO_ID = "an earlier call has no id"
SAME_TOOL = "an earlier call is of the same tool"
MEDIA = "earlier messages show media"
MANY_MEDIA = "an earlier message shows as many media"
REAL_TEXTS = "the real system texts and the last question stand before the turn"
SAYING = frozenset(("system", "user", "assistant", "tool"))
MOST_WORDS = 4
"""Experiments with words that the template looks for; the last one has all that are left."""
SWITCHES = "an earlier message switches reasoning on or off"


@attrs.frozen
class Experiment:
    """A history in which the tail must be the same.

    Attributes:
        name: In what it differs from the history that was asked about first. Of several with one name one
            must be taken.
        histories: It in each style; the first that the template takes counts.
        needed: Whether it shows nothing if the template takes none.
    """

    name: str
    histories: Sequence[Context | None]
    needed: bool = True


def experiments(turn: SampledTurn, environment: Environment) -> Iterator[Experiment]:
    """Yield the experiments for a turn before these new messages, those of one name beside each other.

    Where the history is unknown, templates may tell several roles before the turn apart, and not every one of
    them need be taken.
    """
    known, saying = turn.history_known, turn.switched
    # DeepSeek-V3 writes another opener after an earlier tool turn; Mistral-Nemo moves the system text.
    for role in (turn.after,) if known else (*BEFORE, *OF_SYSTEM):
        yield Experiment(OTHER_WORDS, Past(role=role, saying=saying).histories, known)
    # Templates remember that a tool loop is open (Qwen3 keeps its reasoning), and what ends it differs.
    looped = [Past(loop=turn.loop, saying=saying)] if known and turn.loop else []
    yield from (Experiment(LOOP_GOES_ON, past.histories) for past in looped)
    # Nemotron nano-v2 takes the last switch that a system or user text has, wherever it stands.
    if known and saying:
        yield Experiment(SWITCHED_ON, Past(role=turn.after, saying=saying, words=ON).histories)
    # Community templates for Qwen and Gemma 4 count the results that say "failed", or look for a phrase.
    said = turn.said
    for word in filter(None, (*said[: MOST_WORDS - 1], " ".join(said[MOST_WORDS - 1 :]))):
        for role in (turn.after,) if known else BEFORE:
            past = Past(role=role, words=word, saying=SAYING, twice=True)
            yield Experiment(f"earlier messages say {word!r}", past.histories, known)
    # gpt-oss, Gemma and Kimi name a result by the call that has its id, some by the first one.
    befores = [Past(role=role, saying=saying) for role in ((turn.after,) if known else BEFORE)]
    yield from _of_calls(turn, environment, befores, looped)
    yield from _of_media(turn)
    # SmolLM3 looks for switches in the system text, GLM-4.5 in each user's; others ask for a user at all.
    if known:
        yield Experiment(REAL_TEXTS, akin_histories(turn.after, turn.history, called=turn.called))
    else:
        yield from (Experiment(SWITCHES, (history,), needed=False) for history in SWITCHED)


def _of_calls(
    turn: SampledTurn, environment: Environment, befores: Sequence[Past], looped: Sequence[Past]
) -> Iterator[Experiment]:
    """Yield experiments with earlier calls of the same ids, or of the same tools."""
    for name, ways in _earlier_calls({*_orphans(turn, environment), *turn.reused}):
        for past in (*befores, *looped):
            calls = (attrs.evolve(past, calls=turns, called=True) for turns in ways)
            yield Experiment(name, tuple(chain.from_iterable(one.histories for one in calls)))
    for tool in _unnamed(environment):
        for past in befores:
            yield Experiment(SAME_TOOL, attrs.evolve(past, tool=tool, called=True).histories)


def _of_media(turn: SampledTurn) -> Iterator[Experiment]:
    """Yield experiments with earlier media: a template may number them, or leave some out."""
    # Qwen2-VL numbers pictures through the conversation where an argument says so.
    many, base = min(turn.shown, MOST_SHOWN), Past(role=turn.after, saying=turn.switched)
    for modality in turn.modalities:
        shows = attrs.evolve(base, media=(modality,))
        both = (*shows.histories, *attrs.evolve(shows, aside=True).histories)
        yield Experiment(MEDIA, both, turn.history_known)
        shows = attrs.evolve(shows, shown=many, more=False, aside=True)
        yield from [Experiment(MANY_MEDIA, shows.histories, turn.history_known)] * bool(many)


def _earlier_calls(ids: set[Any]) -> Iterator[tuple[str, Sequence[Turns]]]:
    """Yield ways in which calls of these ids may stand before a turn; of each the first taken one counts.

    Named ones are called in one turn, and in a turn each where a template takes no more. A missing id may be
    None, or have no key: a template may take one of them alone, as it does of the real turn.
    """
    named = tuple(sorted((one for one in ids if one is not None), key=str))
    if named:
        yield SAME_ID, tuple(dict.fromkeys(((named,), tuple((one,) for one in named))))
    if None in ids:
        yield NO_ID, (((None,),),)
        yield NO_ID, (((NO_KEY,),),)


def _orphans(turn: SampledTurn, environment: Environment) -> set[Any]:
    """Return the ids that results answer and that neither the turn nor a new message called.

    A result without an id may be named by an earlier call without one.
    """
    called = set(called_ids(turn.message, environment))
    answered = (message.get("tool_call_id") for message in environment if message["role"] not in LAST)
    return {as_id(one) for one in answered} - called


def _unnamed(environment: Environment) -> list[str]:
    """Return the tools of results without an id: an earlier call of the same tool may give it one."""
    results = (message for message in environment if message["role"] not in LAST)
    names = (message.get("name") for message in results if message.get("tool_call_id") is None)
    return sorted({name for name in names if isinstance(name, str)})
