"""Calls that were stored with their whole history share it again, as they did when they were made.

A log repeats ids and messages with every request: a conversation of T turns is written T times over. Held so,
a long one would need memory by the square. What is shared here is equal to the last id and character.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable

import attrs
import orjson

from tito_core import Ids, InputError, Messages, TitoError
from tito_core.ids import PACKED
from tito_core.samples import StoredCall

from .forms import Batch, CallPlace

RECENT = 64
"""How many calls are looked at for one that a call continues: the agents that speak at a time."""
TAIL = 8
"""Last ids of a call that are looked at before all of them."""


@attrs.frozen
class _Seen:
    """A call, and what it ends with."""

    call: StoredCall
    tail: tuple[int, ...]


@attrs.define
class Thrift:
    """Lets the calls of one conversation share what they have in common."""

    _seen: deque[_Seen] = attrs.field(factory=lambda: deque(maxlen=RECENT))

    def share(self, call: StoredCall) -> StoredCall:
        """Return an equal call that shares its history with one before it, if it has one."""
        step = call.step
        if step.prompt_ids.parent is None:  # whatever has parts shares them already
            older = self._continued(step.prompt_ids)
            ids = step.prompt_ids.packed() if older is None else _grown(older.ids, step.prompt_ids)
            prompt = step.prompt if older is None else _told(older.step.prompt, step.prompt)
            call = attrs.evolve(call, step=attrs.evolve(step, prompt=prompt, prompt_ids=ids))
        self._seen.appendleft(_Seen(call, _last(call.ids)))
        return call

    def _continued(self, ids: Ids) -> StoredCall | None:
        """Return the latest call that has the most of these ids, from the first one on."""
        part, found = ids.part, None
        for seen in self._seen:
            size = len(seen.call.ids)
            fits = TAIL <= size <= len(part) and tuple(part[size - TAIL : size]) == seen.tail
            longer = found is None or size > len(found.ids)
            if fits and longer and ids.starts_with(seen.call.ids):
                found = seen.call
        return found


def _last(ids: Ids) -> tuple[int, ...]:
    found: list[int] = []
    for link in ids.links():
        found = [*link.part[-TAIL:], *found]
        if len(found) >= TAIL:
            break
    return tuple(found[-TAIL:])


def _grown(older: Ids, ids: Ids) -> Ids:
    """Return ids that begin with older ones, as what they add."""
    return older.then(array(PACKED, ids.part[older.length :]))


def _told(older: Messages, prompt: Messages) -> Messages:
    """Return a prompt as what it adds to an older one, if it begins with the very same messages."""
    known, told = _flat(older), _flat(prompt)
    if orjson.dumps(told[: len(known)]) != orjson.dumps(known):
        return prompt
    return older.then(told[len(known) :])


def _flat(messages: Messages) -> list[dict[str, object]]:
    """Return the messages themselves, which nobody may change."""
    parts: Iterable[Iterable[dict[str, object]]] = messages.parts()
    return [message for part in parts for message in part]


@attrs.define
class Growing:
    """Takes calls in."""

    name: str
    first: int
    """Its first line, counted from 1."""
    last: int = attrs.field(init=False, default=0)
    calls: dict[str, StoredCall] = attrs.field(factory=dict)
    """By name, as they came."""
    problems: list[Problem] = attrs.field(factory=list)
    """What could not be read, as it came."""
    _thrift: Thrift = attrs.field(factory=Thrift)

    def take(self, batch: Batch, line: int) -> None:
        """Take in what a line has."""
        self.last = line
        for make in batch.parts:
            try:
                self._keep(make(CallPlace(line, self.calls)))
            except TitoError as error:
                self.problems.append(Problem(line, str(error)))

    def _keep(self, made: Iterable[StoredCall]) -> None:
        for call in made:
            if call.name in self.calls:
                raise InputError(f"a second call of its conversation has the name {call.name!r:.60}")
            self.calls[call.name] = self._thrift.share(call)


@attrs.frozen
class Problem:
    """Something of a file that is in no conversation, so that no row holds it.

    >>> str(Problem(3, "is no JSON"))
    'line 3: is no JSON'
    """

    line: int
    """Counted from 1."""
    reason: str
    more: int = 0
    """Further lines that the same holds of."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@attrs.frozen
class Nameless(Problem):
    """A line without the id that was to name its conversation."""


GIVE = "give the name of a field that every line has"


def without_id(field: str, more: int = 0) -> str:
    """Return what is to be said of a line without an id, and of more of them.

    >>> without_id("meta.s", 2)
    'has no id at `meta.s`, nor have 2 more lines: give the name of a field that every line has'
    """
    others = f", nor ha{'ve' if more > 1 else 's'} {more:,} more line{'s' * (more > 1)}" if more else ""
    return f"has no id at `{field}`{others}: {GIVE}"
