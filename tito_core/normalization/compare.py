"""Which messages are the same: compared by what they say, with a receipt for every other difference."""

from __future__ import annotations

from typing import Any

import attrs

from ..message import Message, copied
from .canonical import Canonical, CanonicalCall, Value, normal_copy, trimmed
from .receipts import Forgiveness, receipts


def same(
    ours: Message, theirs: Message, forgive: frozenset[Forgiveness] = frozenset()
) -> frozenset[Forgiveness] | None:
    """Return what had to be forgiven for two messages to be the same, or None where they differ.

    `ours` is what was stored, `theirs` what came back; `forgive` names optional differences.

    >>> same({"role": "user", "content": "a"}, {"role": "user", "content": "b"}) is None
    True
    >>> same({"role": "assistant", "content": ""}, {"role": "assistant", "content": None})
    frozenset({<Forgiveness.EMPTY_CONTENT: "an assistant's content was None, empty or absent">})
    """
    kinds = {type(ours) is dict, type(theirs) is dict}
    found = same_copies(copied([ours], "ours")[0], copied([theirs], "theirs")[0], Renaming(forgive))
    return found if found is None or len(kinds) == 1 else found | {Forgiveness.OBJECT}


@attrs.define
class Renaming:
    """What a comparison of conversations carries from message to message."""

    forgive: frozenset[Forgiveness]
    ours: dict[Value, int] = attrs.field(factory=dict)
    theirs: dict[Value, int] = attrs.field(factory=dict)

    def same_id(self, ours: Value, theirs: Value) -> bool:
        """Tell whether two ids are the same, or the same under the renaming seen so far."""
        if Forgiveness.RENAMED_TOOL_IDS not in self.forgive or ours is None or theirs is None:
            return bool(ours == theirs)
        return _ordinal(self.ours, ours) == _ordinal(self.theirs, theirs)


def _ordinal(seen: dict[Value, int], item: Value) -> int:
    return seen.setdefault(item, len(seen))


def same_copies(
    ours: dict[str, Any], theirs: dict[str, Any], renaming: Renaming
) -> frozenset[Forgiveness] | None:
    """Compare two copied messages; see `same`."""
    left, right = normal_copy(ours), normal_copy(theirs)
    extra = _same_forms(left, right, renaming)
    if extra is None:
        return None
    return extra | receipts(ours, theirs)


def _same_forms(left: Canonical, right: Canonical, renaming: Renaming) -> frozenset[Forgiveness] | None:
    """Compare canonical forms; return the optional differences that were forgiven, or None."""
    if (left.role, left.name, len(left.tool_calls)) != (right.role, right.name, len(right.tool_calls)):
        return None
    found = [
        _same_content(left, right, renaming.forgive),
        _same_reasoning(left, right, renaming.forgive),
        *(_same_call(a, b, renaming) for a, b in zip(left.tool_calls, right.tool_calls, strict=True)),
        _same_tool_id(left.tool_call_id, right.tool_call_id, renaming),
    ]
    return None if None in found else frozenset().union(*filter(None, found))


_SAME: frozenset[Forgiveness] = frozenset()


def _same_content(
    left: Canonical, right: Canonical, forgive: frozenset[Forgiveness]
) -> frozenset[Forgiveness] | None:
    if left.content == right.content:
        return _SAME
    optional = Forgiveness.TRAILING_WHITESPACE
    if optional in forgive and left.role == "assistant" and trimmed(left) == trimmed(right):
        return frozenset((optional,))
    return None


def _same_reasoning(
    left: Canonical, right: Canonical, forgive: frozenset[Forgiveness]
) -> frozenset[Forgiveness] | None:
    if left.reasoning == right.reasoning:
        return _SAME
    optional = Forgiveness.DROPPED_REASONING
    if optional in forgive and left.role == "assistant" and right.reasoning is None:
        return frozenset((optional,))
    return None


def _same_call(
    left: CanonicalCall, right: CanonicalCall, renaming: Renaming
) -> frozenset[Forgiveness] | None:
    if (left.name, left.arguments) != (right.name, right.arguments):
        return None
    return _same_tool_id(left.id, right.id, renaming)


def _same_tool_id(left: Value, right: Value, renaming: Renaming) -> frozenset[Forgiveness] | None:
    if not renaming.same_id(left, right):
        return None
    return _SAME if left == right else frozenset((Forgiveness.RENAMED_TOOL_IDS,))
