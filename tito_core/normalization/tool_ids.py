"""A prompt whose tool call ids are those that its history has: a client may have renamed them.

What is sampled next is kept with the history, so that one name must stand in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ..message import Message, copied
from .canonical import calls_in

Plain = dict[str, Any]


def restore_tool_ids(ours: Iterable[Message], theirs: Sequence[Message]) -> tuple[Plain, ...]:
    """Return their messages with the ids that ours have, in what is new, too.

    `ours` are the messages that theirs begin with, under a renaming.

    >>> call = {"function": {"name": "f", "arguments": "{}"}}
    >>> ours = [{"role": "assistant", "tool_calls": [{"id": "a", **call}]}]
    >>> theirs = [{"role": "assistant", "tool_calls": [{"id": "x", **call}]},
    ...           {"role": "tool", "tool_call_id": "x", "content": "7"}]
    >>> restore_tool_ids(ours, theirs)[1]
    {'role': 'tool', 'tool_call_id': 'a', 'content': '7'}
    """
    held = copied(theirs, "prompt")
    named = zip(chain.from_iterable(map(_ids, held)), chain.from_iterable(map(_ids, ours)), strict=False)
    names = {new: old for new, old in named if isinstance(new, str) and isinstance(old, str)}
    return tuple(_with(message, names) for message in held)


def _ids(message: Message) -> Iterator[Any]:
    """Yield the ids in a message, in order."""
    yield message.get("tool_call_id")
    yield from (call.get("id") for call in calls_in(message) if isinstance(call, dict))


def _with(message: Plain, names: Mapping[str, str]) -> Plain:
    made = dict(message)
    if isinstance(made.get("tool_call_id"), str):
        made["tool_call_id"] = names.get(made["tool_call_id"], made["tool_call_id"])
    if isinstance(made.get("tool_calls"), list):
        made["tool_calls"] = [_called(call, names) for call in made["tool_calls"]]
    return made


def _called(call: Any, names: Mapping[str, str]) -> Any:
    known = isinstance(call, dict) and isinstance(call.get("id"), str)
    return {**call, "id": names.get(call["id"], call["id"])} if known else call
