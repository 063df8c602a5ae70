"""What the template writes between a sampled turn and the place where the model speaks next.

It is asked for in short dummy conversations and believed only where it is proven: the turn's content is
located by difference, a second, unlike conversation must give the same tail, and no message may vanish.
What depends on the history beyond that cannot be known at this price, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from .ask import Asking, ask
from .dummy import PLAIN, UNLIKE, USER, Form, forms
from .environment import altered, readings, shapes
from .errors import TemplateRefused
from .refusal import Reason, Refusal
from .seam import SENTINELS, Seam, common_prefix, locate

Environment = tuple[dict[str, Any], ...]
RETRIED = (Reason.TEMPLATE_REFUSED, Reason.SWALLOWED)
"""Refusals that another reading of the same environment may overcome."""


@attrs.frozen
class Bridge:
    """What the template writes after a turn's own text, proven."""

    ids: tuple[int, ...]
    """The close, the environment and the generation prompt."""
    generation_prompt: int
    """How many of the ids, at the end, are the generation prompt."""


def bridging(
    turn: dict[str, Any], environment: Environment, suffix: tuple[int, ...], stop: int | None
) -> Asking[Bridge | Refusal]:
    """Ask for the bridge after `turn`, in at most some twenty questions, each as long as what is new.

    `suffix` is the template's turn close and `stop` the id that the turn ended with, None where it was cut.
    """
    refusal = Refusal(Reason.UNPROVEN_TAIL)
    for reading in readings(environment):
        found = yield from _read(turn, reading, suffix, stop)
        if isinstance(found, Bridge):
            return found
        refusal = found
        if found.reason not in RETRIED:
            break
    return refusal


def _read(
    turn: dict[str, Any], environment: Environment, suffix: tuple[int, ...], stop: int | None
) -> Asking[Bridge | Refusal]:
    """Find the first way to write the turn in which its text can be located, and prove the tail."""
    refusal = Refusal(Reason.UNPROVEN_TAIL)
    for form in forms(turn):
        seam = yield from _locate(form, environment)
        if isinstance(seam, Seam):
            return (yield from _prove(form, seam, environment, suffix, stop))
        refusal = seam
    return refusal


def _locate(form: Form, environment: Environment) -> Asking[Seam | Refusal]:
    try:
        first = yield from ask((*PLAIN, form.write(SENTINELS[0]), *environment))
        second = yield from ask((*PLAIN, form.write(SENTINELS[1]), *environment))
    except TemplateRefused as refused:
        return Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
    seam = locate(first, second)
    return seam or Refusal(Reason.UNPROVEN_TAIL, "the template loses, repeats or merges the turn's text")


def _prove(
    form: Form, seam: Seam, environment: Environment, suffix: tuple[int, ...], stop: int | None
) -> Asking[Bridge | Refusal]:
    """Return the bridge if everything about it can be shown."""
    cut = yield from _cut(form, seam, suffix, stop)
    if isinstance(cut, Refusal):
        return cut
    if not (yield from _agrees(form, seam, environment)):
        return Refusal(Reason.UNPROVEN_TAIL, "the tail depends on the history before it")
    lost = yield from _swallowed(form, seam, environment)
    if lost is not None:
        return Refusal(Reason.SWALLOWED, f"a {environment[lost]['role']} message leaves no trace")
    prompt = yield from _generation_prompt(form, seam, environment)
    return Bridge(seam.tail[cut:], min(prompt, len(seam.tail) - cut))


def _agrees(form: Form, seam: Seam, environment: Environment) -> Asking[bool]:
    """Tell whether an unlike history gives the same tail; the first that the template takes decides."""
    for context in UNLIKE:
        try:
            ids = yield from ask((*context, form.write(SENTINELS[0]), *environment))
        except TemplateRefused:
            continue
        return seam.ends(ids)
    return False


def _swallowed(form: Form, seam: Seam, environment: Environment) -> Asking[int | None]:
    """Return the position of a message whose text changes nothing, one of each shape tried."""
    for position in shapes(environment):
        changed = altered(environment, position)
        try:
            ids = yield from ask((*PLAIN, form.write(SENTINELS[0]), *changed))
        except TemplateRefused:
            continue  # it looked at the message
        if seam.ends(ids):
            return position
    return None


def _generation_prompt(form: Form, seam: Seam, environment: Environment) -> Asking[int]:
    """Return how many ids of the tail appear only because the model is to speak next."""
    try:
        ids = yield from ask((*PLAIN, form.write(SENTINELS[0]), *environment), add_generation_prompt=False)
    except TemplateRefused:
        return 0
    without = seam.after(ids)
    return 0 if without is None else len(seam.tail) - common_prefix(seam.tail, without)


def _cut(form: Form, seam: Seam, suffix: tuple[int, ...], stop: int | None) -> Asking[int | Refusal]:
    """Return where in the tail the turn's own text is over and its close begins."""
    if not form.calls:
        return 0 if _closes(seam.tail, suffix, stop) or not suffix else _mismatch()
    shared = yield from _call_close(form, seam)
    places = [i for i in range(shared + 1) if _closes(seam.tail[i:], suffix, stop)]
    if len(places) == 1:
        return places[0]
    if not places and stop is not None:
        return Refusal(Reason.ODD_STOP, f"the turn ended with {stop}, which closes no tool call here")
    return Refusal(Reason.UNPROVEN_TAIL, f"{len(places)} places where the tool call's turn may end")


def _mismatch() -> Refusal:
    return Refusal(Reason.CLOSE_MISMATCH, "the template writes something else than the suffix after the turn")


def _closes(ids: Sequence[int], suffix: tuple[int, ...], stop: int | None) -> bool:
    """Tell whether a close begins here: the suffix, or the very id that the turn stopped with."""
    begins = bool(suffix) and tuple(ids[: len(suffix)]) == suffix
    return begins or (stop is not None and len(ids) > 0 and ids[0] == stop)


def _call_close(form: Form, seam: Seam) -> Asking[int]:
    """Return how far the tail stays the same whatever follows the tool call."""
    for following in ((), (USER,)):
        try:
            ids = yield from ask((*PLAIN, form.write(SENTINELS[0]), *following))
        except TemplateRefused:
            continue
        after = seam.after(ids)
        if after is not None:
            return common_prefix(seam.tail, after)
    return -1
