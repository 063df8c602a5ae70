"""Keys of messages that a template reads beside those that make up a message's identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import attrs

from ..message import call_ids
from ..normalization.canonical import IDENTITY
from ..normalization.receipts import exactly
from ..questions import Questions, ask, bounded, if_taken
from .history import ANSWER, CALL_ID, USER, Context, lookups
from .seam import SHORT
from .turn_form import calls_of, forms

Plain = dict[str, Any]
OPENING: tuple[Context, ...] = ((),)
BEFORE = {"assistant": ((USER,),), **dict.fromkeys(("user", "system", "developer"), OPENING)}
"""What stands before a message of a role; any other role answers a tool call."""
FRAMES: tuple[tuple[Callable[[Context, Plain], Context], ...], ...] = (
    # Qwen3 looks for the last user's message: what stands before it is written otherwise.
    (lambda before, message: (*before, message, *(before or (ANSWER,)), message),),
    (lambda before, message: (*before, message), lambda before, message: (*before, message, USER)),
)
"""Where a message stands: before a question and as the last one, at once; else in two conversations."""
MOST = 16
"""How many questions are asked: two for a kind of messages that the template takes.

A client that changes more kinds is not believed.
"""


def read_key_questions(pairs: Iterable[tuple[Plain, Plain]]) -> Questions[str | None]:
    """Ask for a key that the template reads and in which the two messages of a pair differ, None without one.

    A key that the template ignores may differ. One pair stands for all with the same role, keys and form.
    """
    changed: dict[object, tuple[Plain, Plain, frozenset[str]]] = {}
    for ours, theirs in pairs:
        keys = differing_keys(ours, theirs)
        form = (ours["role"], keys, bool(call_ids(ours)), bool(ours.get("content")))
        if keys:
            changed.setdefault(form, (ours, theirs, keys))
    kinds = list(changed.values())
    return (yield from bounded(_read_key(kinds), MOST, min(kinds[-1][2]))) if kinds else None


def _read_key(kinds: Sequence[tuple[Plain, Plain, frozenset[str]]]) -> Questions[str | None]:
    for ours, theirs, keys in kinds:
        if (yield from _reads(ours, theirs, keys)):
            return min(keys)
    return None


def differing_keys(ours: Plain, theirs: Plain) -> frozenset[str]:
    """Return the keys beside those of the identity in which two messages differ.

    >>> sorted(differing_keys({"role": "user", "id": 1}, {"role": "user", "id": True, "name": "a"}))
    ['id']
    """
    others = (ours.keys() | theirs.keys()) - set(IDENTITY)
    return frozenset(key for key in others if exactly(ours.get(key)) != exactly(theirs.get(key)))


def _reads(ours: Plain, theirs: Plain, keys: frozenset[str]) -> Questions[bool]:
    """Return whether a render changes with these keys, or none can be had."""
    changed = {key: value for key, value in ours.items() if key not in keys}
    changed |= {key: theirs[key] for key in keys if key in theirs}
    ways = product(FRAMES, _befores(ours), _writers(ours))
    for frames, before, write in ways:
        taken = False
        for frame in frames:
            one = yield from _rendered(frame(before, write(ours)))
            two = yield from _rendered(frame(before, write(changed)))
            if one != two:
                return True
            taken |= one is not None
        if taken:
            return False
    return True


def _befores(message: Plain) -> tuple[Context, ...]:
    """Return what may stand before a message; the first that the template takes counts."""
    ids = ((message.get("tool_call_id") or CALL_ID,),)
    called = (lookups("find", 25, ids, as_object=as_object) for as_object in (True, False))
    return BEFORE.get(message["role"]) or tuple((USER, *lookup[:1]) for lookup in called)


def _writers(message: Plain) -> Sequence[Callable[[Plain], Plain]]:
    """Return ways to write a message: as it is; with calls, also with arguments as texts and as objects."""
    ways = forms(message)[:2] if calls_of(message) else []
    return [
        lambda one: one,
        *(lambda turn, way=way: attrs.evolve(way, turn=turn).write(SHORT) for way in ways),
    ]


def _rendered(messages: Context) -> Questions[tuple[int, ...] | None]:
    return (yield from if_taken(ask(messages, add_generation_prompt=False), None))
