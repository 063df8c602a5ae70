"""Keys of messages that a template reads beside those that make up a message's identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import attrs

from ..message import Message, call_ids
from ..normalization.canonical import other_keys
from ..normalization.clean import flattened
from ..normalization.receipts import exactly
from ..questions import Questions, ask, bounded, if_taken
from .history import ANSWER, CALL_ID, USER, Context, lookups
from .seam import SHORT
from .turn_form import calls_of, forms, naming

Plain = dict[str, Any]
OPENING: tuple[Context, ...] = ((),)
BEFORE = {"assistant": ((USER,),), **dict.fromkeys(("user", "system", "developer"), OPENING)}
"""What stands before a message of a role; any other role answers a tool call."""
MOST = 24
"""How many questions are asked: two for a kind of messages that the template takes, four for a kind of turns.

A client that changes more kinds is not believed.
"""


def changed_kinds(pairs: Iterable[tuple[Message, Message]]) -> dict[str, tuple[Plain, Plain]]:
    """Return a stored message and it with other keys, for each kind that came back so, by the kind's name.

    One pair stands for all with the same role, keys and form, and with the same names of an assistant.
    """
    kinds: dict[str, tuple[Plain, Plain]] = {}
    for pair in pairs:
        ours, theirs = flattened(map(dict, pair))
        keys = differing_keys(ours, theirs)
        names = [one.get("name") for one in (ours, theirs) if "name" in keys]
        kind = ours["role"], sorted(keys), names, bool(call_ids(ours)), bool(ours.get("content"))
        if keys:
            kinds.setdefault(repr(kind), (ours, with_keys(ours, theirs, keys)))
    return kinds


def read_key_questions(pairs: Iterable[tuple[Message, Message]]) -> Questions[str | None]:
    """Ask for a key that the template reads and in which the two messages of a pair differ, None without one.

    A key that the template ignores may differ.
    """
    kinds = list(changed_kinds(pairs).values())
    return (yield from bounded(_read_key(kinds), MOST, min(differing_keys(*kinds[-1])))) if kinds else None


def _read_key(kinds: Iterable[tuple[Plain, Plain]]) -> Questions[str | None]:
    for ours, changed in kinds:
        if (yield from _reads(ours, changed)):
            return min(differing_keys(ours, changed))
    return None


def differing_keys(ours: Message, theirs: Message) -> frozenset[str]:
    """Return the keys in which two messages differ beside their identity; see `other_keys`.

    >>> sorted(differing_keys({"role": "user", "id": 1}, {"role": "user", "id": True, "name": "a"}))
    ['id']
    """
    left, right = other_keys(ours), other_keys(theirs)
    return frozenset(key for key in left | right if exactly(left.get(key)) != exactly(right.get(key)))


def with_keys(message: Message, other: Message, keys: frozenset[str]) -> Plain:
    """Return `message` with what `other` has under `keys`.

    >>> with_keys({"role": "user", "id": 1, "at": 2}, {"id": 3}, frozenset(("id", "at")))
    {'role': 'user', 'id': 3}
    """
    kept = {key: value for key, value in message.items() if key not in keys}
    return kept | {key: other[key] for key in sorted(keys) if key in other}


def _reads(ours: Plain, changed: Plain) -> Questions[bool]:
    """Return whether two messages are written differently, or none can be had."""
    for alone, before, write in product((False, True), _befores(ours), _writers(ours)):
        ways = (_conversations(before, write(one), alone=alone) for one in (ours, changed))
        taken = False
        for place, (one, other) in enumerate(zip(*ways, strict=True)):
            first = yield from _rendered(one)
            if first != (yield from _rendered(other)):
                return True
            taken |= first is not None and (alone or not place)
            if not (taken or alone):
                break
        if taken:
            return False
    return True


def _conversations(before: Context, message: Plain, *, alone: bool) -> tuple[Context, ...]:
    """Return where a message is shown: before what follows it and as the last one, at once.

    If `alone`, it is shown so in two conversations: not every template takes it twice.
    """
    results = tuple(map(_result, calls_of(message)))
    answered = (*before, message, *(results or (USER,)))
    if alone:
        return (*before, message), answered
    # Qwen3 looks for the last user's message: what stands before it is written otherwise.
    twice = (*before, message, *(results or before or (ANSWER,)), message)
    # The generation prompt may depend on the turn before it.
    return (twice, answered) if message["role"] == "assistant" else (twice,)


def _result(call: Plain) -> Plain:
    name, call_id = naming(call)
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": "29"}


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
    speaks = messages[-1]["role"] != "assistant"
    return (yield from if_taken(ask(messages, add_generation_prompt=speaks), None))
