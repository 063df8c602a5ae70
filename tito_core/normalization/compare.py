"""Compare two messages by their canonical forms, with a receipt for every difference that was forgiven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..message import Message, copied
from .canonical import Canonical, Value, normal_copy, trimmed
from .receipts import Forgiveness, receipts


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
    receipts = same_copies(copied([ours], "ours")[0], copied([theirs], "theirs")[0], Renaming(forgive))
    one_is_an_object = isinstance(ours, Mapping) != isinstance(theirs, Mapping)
    return receipts | {Forgiveness.OBJECT} if receipts is not None and one_is_an_object else receipts


@attrs.define
class Renaming:
    """What a comparison of two conversations carries from message to message.

    Attributes:
        forgive: Optional differences that do not count.
        ours: The stored ids of tool calls, numbered in the order in which they occur.
        theirs: The same for the ids that came back. Ids match if their numbers do; a result's id that no
            call has is equal to itself alone.
    """

    forgive: frozenset[Forgiveness]
    ours: dict[Value, tuple[int]] = attrs.field(factory=dict)
    theirs: dict[Value, tuple[int]] = attrs.field(factory=dict)

    def same_id(self, ours: Value, theirs: Value, *, calls: bool) -> bool:
        """Return whether two ids are equal, also under the renaming seen so far; `calls` bring new ids."""
        if Forgiveness.RENAMED_TOOL_IDS not in self.forgive or ours is None or theirs is None:
            return bool(ours == theirs)
        if calls:
            number = self.ours.setdefault(ours, (len(self.ours),))
            return number == self.theirs.setdefault(theirs, (len(self.theirs),))
        return bool(self.ours.get(ours, ours) == self.theirs.get(theirs, theirs))


def same_copies(
    ours: dict[str, Any], theirs: dict[str, Any], renaming: Renaming
) -> frozenset[Forgiveness] | None:
    """Compare `ours` and `theirs`, both private copies; `renaming` carries tool ids between messages."""
    optional = _same_forms(normal_copy(ours), normal_copy(theirs), renaming)
    return None if optional is None else optional | receipts(ours, theirs)


def _same_forms(left: Canonical, right: Canonical, renaming: Renaming) -> frozenset[Forgiveness] | None:
    """Return the optional differences that were forgiven between two canonical forms, or None."""
    first, second = (
        (form.role, form.name, [(call.name, call.arguments) for call in form.tool_calls])
        for form in (left, right)
    )
    if first != second:
        return None
    optional = renaming.forgive if left.role == "assistant" else _SAME
    calls = list(zip(left.tool_calls, right.tool_calls, strict=True))
    called = bool(calls) and all(ours.id is not None and ours.id == theirs.id for ours, theirs in calls)
    found = [
        _same_text(left.content, right.content, Forgiveness.DROPPED_CONTENT if called else None, optional),
        _same_text(left.reasoning, right.reasoning, Forgiveness.DROPPED_REASONING, optional),
        *(_same_tool_id(ours.id, theirs.id, renaming, calls=True) for ours, theirs in calls),
        _same_tool_id(left.tool_call_id, right.tool_call_id, renaming, calls=False),
    ]
    return None if None in found else frozenset().union(*filter(None, found))


_SAME: frozenset[Forgiveness] = frozenset()


def _same_text(
    left: Value, right: Value, dropped: Forgiveness | None, optional: frozenset[Forgiveness]
) -> frozenset[Forgiveness] | None:
    """Return nothing for equal texts, the first difference that holds and is forgiven, else None."""
    if left == right:
        return _SAME
    holds = {Forgiveness.OUTER_WHITESPACE: trimmed(left) == trimmed(right), dropped: right is None}
    return next((frozenset((one,)) for one in holds if one in optional and holds[one]), None)


def _same_tool_id(
    left: Value, right: Value, renaming: Renaming, *, calls: bool
) -> frozenset[Forgiveness] | None:
    if not renaming.same_id(left, right, calls=calls):
        return None
    return _SAME if left == right else frozenset((Forgiveness.RENAMED_TOOL_IDS,))
