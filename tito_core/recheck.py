"""Verify a stitched prompt against a render of the whole conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from .errors import InputError
from .message import Message, copied
from .normalization.canonical import function_of
from .normalization.clean import clean, says
from .questions import Questions, ask, if_taken
from .seams.seam import SHORT, Seam, common_prefix, seam_questions
from .seams.suffix import as_taken
from .seams.turn import Environment
from .seams.turn_form import Plain, TurnForm, calls_of, forms
from .stitch import Stitched


def recheck_questions(stitched: Stitched, prompt: Sequence[Message]) -> Questions[bool | None]:
    """Ask whether the real conversation's render has the stitched ids after the turn.

    Only the turn's own text is replaced, so that its end can be found. It costs O(history) to render, and
    O(new) to tokenize where the receiver can cut text. The result is None if the template takes no way of
    writing the conversation, or loses the turn's text. `prompt` is the one that was stitched.
    """
    return (yield from as_taken(_agrees(stitched, prompt)))


def _agrees(stitched: Stitched, prompt: Sequence[Message]) -> Questions[bool | None]:
    *past, message = clean(prompt[: stitched.step.messages.length])
    environment = clean(stitched.environment)
    since = None if says((*past, *environment), SHORT) else SHORT  # cut where the turn's text begins
    placed = yield from _placed(tuple(past), message, environment, since)
    if placed is None:
        return None
    form, seam = placed
    if calls_of(message):
        return _equals_tail(stitched, seam, (yield from _call_after(tuple(past), form, seam, since)))
    return (yield from _text_agrees((*past, message, *environment), stitched, seam))


def _text_agrees(messages: Environment, stitched: Stitched, seam: Seam) -> Questions[bool]:
    """Return whether the tail after a text is what was added, and its beginning was sampled."""
    begun, cut = len(seam.tail) - len(stitched.added), stitched.step.truncated
    equal, sampled = _equals_tail(stitched, seam, Alone(0)), tuple(stitched.step.completion_ids)
    # A cut turn sampled the close up to here; or the last id of an odd one is of its text and its close.
    merged = not cut and sampled[-1:] != seam.tail[: max(begun, 0)][-1:]
    if begun < 1 or seam.tail[begun:] != stitched.added or not (merged or (cut and equal)):
        return equal
    ids, size = (yield from ask(messages)), 1 if merged else begun + 1
    before = ids[: len(ids) - len(stitched.added)]
    return ids[len(before) :] == stitched.added and before[-size:] == sampled[-size:]


def _placed(
    past: Environment, message: Plain, environment: Environment, since: str | None
) -> Questions[tuple[TurnForm, Seam] | None]:
    """Return the first way of writing the turn in which its end can be located, and that seam."""
    for form in forms(message):
        asking = seam_questions(_within(form, past, environment), since=since)
        seam = yield from if_taken(asking, None)
        if isinstance(seam, Seam):
            return form, seam
    return None


@attrs.frozen
class Alone:
    """The text after a call's text if nothing follows it; empty for a turn without calls.

    Attributes:
        size: How many ids of the tail it may be. They are not compared.
        closed: Whether it is all written, so that its close is among them, if it has one then.
    """

    size: int
    closed: bool = False


def _call_after(past: Environment, form: TurnForm, seam: Seam, since: str | None) -> Questions[Alone]:
    """Return what stands after a call with nothing after it; all of the tail, where that is unknown."""
    asking = ask(_within(form, past, ())(SHORT), add_generation_prompt=False, since=since)
    ids = yield from if_taken(asking, ())
    if ids[: seam.place] != seam.ids[: seam.place]:
        return Alone(len(seam.tail))
    alone = ids[seam.place :]
    shared = common_prefix(alone, seam.tail)
    whole = shared == len(alone)
    return Alone(shared + (not whole), whole)  # the end of the call may be one id with what follows it


def _equals_tail(stitched: Stitched, seam: Seam, alone: Alone) -> bool:
    """Return whether the tail is what was added, after what the turn sampled of its close itself."""
    rest = len(seam.tail) - len(stitched.added)
    # What a cut call lacks of its close may be one id with the end of the call, where it is rendered whole.
    merged = int(stitched.step.truncated and alone.size > 0 and seam.tail[rest:] != stitched.added)
    if rest < 0 or seam.tail[rest + merged :] != stitched.added[merged:]:
        return False
    odd = stitched.kept_stop is not None or stitched.replaced_stop is not None
    if stitched.step.truncated or odd:
        return _closes(stitched, seam, alone, rest)
    return _was_closed(tuple(stitched.step.completion_ids), seam.tail[:rest], alone)


def _was_closed(sampled: tuple[int, ...], before: tuple[int, ...], alone: Alone) -> bool:
    """Return whether a turn ends with what the tail has `before` the ids that were added.

    After a tool call that begins with the rest of the call, which is not compared. Of a close the turn must
    have sampled the end alone: what it begins with may be one id with the text before it.
    """
    if not before or sampled[-1:] != before[-1:]:
        return False
    close = before[alone.size :]
    enough = not close or (not alone.closed and close.count(close[-1]) == 1)
    return enough or sampled[len(sampled) - len(close) :] == close


def _closes(stitched: Stitched, seam: Seam, alone: Alone, rest: int) -> bool:
    """Return whether the rest of the close was added to a turn that was cut, or ended with an odd stop.

    A turn that was cut, or whose odd stop was replaced, may have sampled the beginning of the close itself.
    """
    if stitched.added[: len(stitched.inserted_close)] != stitched.inserted_close:
        return False
    if alone.size:
        return not alone.closed or rest <= alone.size
    kept = tuple(stitched.step.completion_ids[: -1 if stitched.replaced_stop is not None else None])
    return not rest or kept[len(kept) - rest :] == seam.tail[:rest]


def _within(
    form: TurnForm, past: Environment, environment: Environment
) -> Callable[[str], tuple[Message, ...]]:
    """Return a function from a text to the conversation, in which nothing else is replaced."""

    def write(text: str) -> tuple[Message, ...]:
        turn = dict(form.turn)
        if form.place is None:
            turn["content"] = text
        if calls_of(turn):
            turn["tool_calls"] = form.calls(text, list(map(_arguments, calls_of(turn))))
        return (*past, turn, *environment)

    return write


def _arguments(call: Plain) -> Any:
    """Return a call's arguments as an object, or as they are if they are not the JSON of one."""
    given = function_of(call).get("arguments")
    if not isinstance(given, str):
        return given
    try:
        parsed = json.loads(given)
        copied([{"role": "assistant", "tool_calls": [{"function": {"arguments": parsed}}]}], "arguments")
    except (ValueError, RecursionError, InputError):  # not JSON, or nested deeper than a message may be
        return given
    return parsed if isinstance(parsed, dict) else given
