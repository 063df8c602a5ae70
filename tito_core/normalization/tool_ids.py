"""Restore tool call ids that a client renamed.

The next turn is stored with its history, so that both must use the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ..message import Message, copied
from .canonical import call_objects

Plain = dict[str, Any]


def restore_tool_ids(ours: Iterable[Message], theirs: Sequence[Message]) -> tuple[Plain, ...]:
    """Return `theirs` with the tool call ids of `ours`, in the new messages too.

    `ours` are the stored messages that `theirs` begin with, except for renamed ids.

    >>> call = {"function": {"name": "f", "arguments": "{}"}}
    >>> ours = [{"role": "assistant", "tool_calls": [{"id": "a", **call}]}]
    >>> theirs = [{"role": "assistant", "tool_calls": [{"id": "x", **call}]},
    ...           {"role": "tool", "tool_call_id": "x", "content": "7"}]
    >>> restore_tool_ids(ours, theirs)[1]
    {'role': 'tool', 'tool_call_id': 'a', 'content': '7'}
    """
    messages = copied(theirs, "prompt")
    places = list(chain.from_iterable(map(_places, messages)))
    new = (holder.get(key) for holder, key in places)
    old = (holder.get(key) for holder, key in chain.from_iterable(map(_places, ours)))
    pairs = zip(new, old, strict=False)
    names = _apart({new: old for new, old in pairs if isinstance(new, str) and isinstance(old, str)})
    for holder, key in places:
        if isinstance(holder.get(key), str):
            holder[key] = names.get(holder[key], holder[key])
    return messages


def _apart(old_ids: Mapping[str, str]) -> dict[str, str]:
    """Return `old_ids` with other names for new ids that equal an old one: two calls must not share one.

    >>> _apart({"b": "a", "c": "b"})
    {'b': 'a', 'c': 'b', 'a': 'c'}
    """
    new_ids = {old: new for new, old in old_ids.items()}
    freed = {}
    for old in sorted(new_ids.keys() - old_ids.keys()):
        freed[old] = new_ids[old]
        while freed[old] in new_ids:
            freed[old] = new_ids[freed[old]]
    return {**old_ids, **freed}


def _places(message: Message) -> Iterator[tuple[Any, str]]:
    """Yield the objects in a message that may name a tool call, in order, and the key of the id in each."""
    yield message, "tool_call_id"
    yield from ((call, "id") for call in call_objects(message))
