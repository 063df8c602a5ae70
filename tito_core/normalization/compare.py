"""Compare two messages by their canonical forms, with a receipt for every difference that was forgiven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..message import Message, copied
from .canonical import Canonical, Value, normal_copy
from .receipts import CHOICES, Forgiveness
from .spelling import receipts

FIELDS = tuple(field.name for field in attrs.fields(Canonical))


def same(
    ours: Message, theirs: Message, forgive: frozenset[Forgiveness] = frozenset()
) -> frozenset[Forgiveness] | None:
    """Return which differences were forgiven for two messages to be the same, or None if they differ.

    `ours` is the stored message, `theirs` the one that came back; `forgive` names optional differences.

    >>> same({"role": "user", "content": "a"}, {"role": "user", "content": "b"}) is None
    True
    >>> same({"role": "assistant", "content": ""}, {"role": "assistant", "content": None})
    frozenset({<Forgiveness.EMPTY_CONTENT: "an assistant's content was None, empty or absent">})
    """
    (left,), (right,) = copied([ours], "ours"), copied([theirs], "theirs")
    one_object = isinstance(ours, Mapping) != isinstance(theirs, Mapping)
    return same_copies(left, right, Renaming(forgive), one_object=one_object)


@attrs.define
class Renaming:
    """State of a comparison of two conversations, carried from message to message.

    Attributes:
        forgive: Optional differences that do not count.
        ours: The stored ids of tool calls, numbered in the order in which they occur.
        theirs: The same for the ids that came back. Ids match if their numbers do; a result's id that no
            call has is equal to itself alone.
    """

    forgive: frozenset[Forgiveness]
    ours: dict[Value, tuple[int]] = attrs.field(factory=dict)
    theirs: dict[Value, tuple[int]] = attrs.field(factory=dict)

    def fits(self, ours: Canonical, theirs: Canonical) -> bool:
        """Return whether the ids of two messages match, if ids may be renamed; true if they may not."""
        renamed = Forgiveness.RENAMED_TOOL_IDS in self.forgive
        return not renamed or _numbered(ours, self.ours) == _numbered(theirs, self.theirs)


def _numbered(form: Canonical, numbers: dict[Value, tuple[int]]) -> list[Value]:
    """Return the number of each id in a message; calls bring new ids."""
    ids = [call.id for call in form.tool_calls]
    called = [None if one is None else numbers.setdefault(one, (len(numbers),)) for one in ids]
    return [*called, numbers.get(form.tool_call_id, form.tool_call_id)]


def same_copies(
    ours: dict[str, Any], theirs: dict[str, Any], renaming: Renaming, *, one_object: bool
) -> frozenset[Forgiveness] | None:
    """Compare `ours` and `theirs`, both private copies; `renaming` carries tool ids between messages.

    With `one_object`, one of them was passed as an object of a client library.
    """
    left, right = normal_copy(ours), normal_copy(theirs)
    differing = [field for field in FIELDS if getattr(left, field) != getattr(right, field)]
    found = [_forgiven(left, right, field, renaming.forgive) for field in differing]
    if None in found or not renaming.fits(left, right):
        return None
    objects = (Forgiveness.OBJECT,) if one_object else ()
    return receipts(ours, theirs, left, right).union(filter(None, found), objects)


def _forgiven(
    ours: Canonical, theirs: Canonical, field: str, forgive: frozenset[Forgiveness]
) -> Forgiveness | None:
    """Return the first row of the table that forgives a difference in `field`."""
    rows = (row for row in CHOICES if row in forgive and CHOICES[row].forgives(ours, theirs, field))
    return next(rows, None)


def forgiving_hash(message: dict[str, Any]) -> int:
    """Return a hash that ignores every difference that a policy can forgive; `message` is a private copy."""
    form = normal_copy(message)
    for choice in CHOICES.values():
        form = attrs.evolve(form, **choice.without(form))
    return hash(tuple(getattr(form, field) for field in FIELDS))
