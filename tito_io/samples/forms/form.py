"""What every stored format defines: how to recognize one of its lines, and how to make calls of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from tito_core.samples import Forest, StoredCall
from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check

Record: TypeAlias = Mapping[str, Any]
"""The JSON object of a line."""


@attrs.frozen
class CallPlace:
    """The line and the conversation that calls come from.

    Attributes:
        line: The line's number, counted from 1.
        calls: The conversation's calls so far, by name.
    """

    line: int
    calls: Mapping[str, StoredCall]

    @property
    def order(self) -> int:
        """The order of the next call, if the file has no other order than that of its lines."""
        return len(self.calls)


CallMaker: TypeAlias = Callable[[CallPlace], Iterable[StoredCall]]
"""Makes the calls of one part of a line; raises `TitoError` if the part cannot be read."""


@attrs.frozen(kw_only=True)
class Batch:
    """The calls that one line has of one conversation.

    Attributes:
        conversation: The conversation's id; None if the line has none.
        parts: One maker of calls per part of the line; an unreadable part does not affect the others.
    """

    conversation: str | None
    parts: Sequence[CallMaker]


LineWriter: TypeAlias = Callable[[str, Forest, bool], Iterable[bytes]]
"""Returns the lines of a conversation: takes its name, its calls, and whether to write every prompt whole."""


@attrs.frozen(kw_only=True)
class StoredForm:
    """One format in which trajectories are stored.

    Attributes:
        name: The value of `--from`.
        description: What is stored in this format, for `--help` and errors.
        whole: Whether a line holds all of its conversations.
        matches: Tells whether an object is in this format, by its keys.
        batches: Returns the batches of a line's object; takes the object and the line's number.
        write: Returns the lines of a conversation in this format; None if it is only read.
        check_file: Raises `InputError` for a file that must not be read; called at the first line.
        expands: Whether `write` can write each prompt's ids whole; without it they are whole or never.
    """

    name: str
    description: str
    whole: bool = False
    matches: Callable[[Record], bool]
    batches: Callable[[Record, int], Iterable[Batch]]
    write: LineWriter | None = None
    expands: bool = False
    check_file: Callable[[Path], None] = lambda _: None


def at(holder: object, *path: str) -> Any:
    """Return the value at a path through nested objects, or None.

    >>> at({"a": {"b": 1}}, "a", "b"), at({"a": None}, "a", "b")
    (1, None)
    """
    for name in path:
        holder = holder.get(name) if isinstance(holder, Mapping) else None
    return holder


def first_id(record: Record, *fields: str) -> str | None:
    """Return the first of some fields that has an id: a string that is not empty, or a whole number.

    >>> first_id({"a": None, "b": 7}, "a", "b")
    '7'
    """
    for field in fields:
        value = record.get(field)
        if isinstance(value, str) and value:
            return value
        if type(value) is int:
            return str(value)
    return None


def record_check(where: str, value: object) -> Check:
    """Return the reader of the fields of a value of a file; its errors name the value as `where`.

    >>> record_check("the trial", {"steps": 3}).get({"steps": 3}, "steps", int)
    3
    """
    return Check(where, EngineAnswer(HTTPStatus.OK, value))
