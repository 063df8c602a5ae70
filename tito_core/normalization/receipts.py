"""The table of differences between messages that are forgiven, by name.

A row says what differs. A difference of spelling is always forgiven: canonical forms do not have it, and
`spelling.receipts` reports it. Any other is forgiven only where a policy names it. Its row has a `Choice`.
The comparison, the hash of messages and the gateway's default follow from that.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Self, TypeAlias

import attrs

from .canonical import Canonical, Value, nulls, rounded, trimmed, without_nulls

Fields: TypeAlias = dict[str, Value]


@attrs.frozen
class Choice:
    """How a difference is compared that is forgiven only where a policy names it.

    Attributes:
        without: Returns the fields of a message that may differ, each without what may differ in it; no field
            where nothing is forgiven, such as in messages of another role.
        only: Returns whether the first message may come back as the second; by default any may.
        gateway: Whether the gateway forgives it by default.
    """

    without: Callable[[Canonical], Fields]
    only: Callable[[Canonical, Canonical], bool] = lambda _, __: True
    gateway: bool = False

    def forgives(self, ours: Canonical, theirs: Canonical, field: str) -> bool:
        """Return whether two messages of one role differ by nothing else in `field`."""
        left, right = self.without(ours), self.without(theirs)
        return field in left and left[field] == right.get(field) and self.only(ours, theirs)


def _without_outer_whitespace(form: Canonical) -> Fields:
    fields = {"content": trimmed(form.content), "reasoning": trimmed(form.reasoning)}
    return fields if form.role == "assistant" else {}


def _without_content(form: Canonical) -> Fields:
    return {"content": None} if form.role == "assistant" and form.tool_calls else {}


def _without_reasoning(form: Canonical) -> Fields:
    return {"reasoning": None} if form.role == "assistant" else {}


def _with_arguments(change: Callable[[Value], Value], form: Canonical) -> Fields:
    calls = (attrs.evolve(call, arguments=change(call.arguments)) for call in form.tool_calls)
    return {"tool_calls": tuple(calls)}


def _without_ids(form: Canonical) -> Fields:
    calls = tuple((call.name, call.arguments) for call in form.tool_calls)
    return {"tool_calls": calls, "tool_call_id": None}


def _calls_alone(ours: Canonical, theirs: Canonical) -> bool:
    """Return whether the calls came back under their ids, and no content beside them."""
    ids, others = ([call.id for call in form.tool_calls] for form in (ours, theirs))
    return theirs.content is None and ids == others and None not in ids


def _all_doubles(_: Canonical, theirs: Canonical) -> bool:
    return _with_arguments(rounded, theirs) == {"tool_calls": theirs.tool_calls}


def _nulls_added(ours: Canonical, theirs: Canonical) -> bool:
    pairs = zip(ours.tool_calls, theirs.tool_calls, strict=True)
    return all(set(nulls(a.arguments)) <= set(nulls(b.arguments)) for a, b in pairs)


def _no_reasoning(_: Canonical, theirs: Canonical) -> bool:
    return theirs.reasoning is None


class Forgiveness(Enum):
    """A difference between two messages that did not prevent a match.

    Attributes:
        says: What differs, in words.
        choice: How it is compared if it is forgiven only where a policy names it; None if always.
    """

    _value_: str
    says: str
    choice: Choice | None

    def __new__(cls, says: str, choice: Choice | None = None) -> Self:
        """Return a row. Its value, which stands in pickles, also says whether the difference is optional."""
        row = object.__new__(cls)
        row.says, row.choice = says, choice
        row._value_ = f"{says} (optional)" if choice else says
        return row

    ABSENT = "a key was missing on one side and None on the other"
    EMPTY_CONTENT = "an assistant's content was None, empty or absent"
    TEXT_PART = "content was one text part on one side and a string on the other"
    ARGUMENTS = "arguments spelled differently: text or object, order of keys, spacing, format of numbers"
    REASONING_NAME = "reasoning was named reasoning on one side and reasoning_content on the other"
    EMPTY_REASONING = "reasoning was None, empty or absent"
    REASONING_PARTS = "reasoning was a text on one side and a list of texts or thinking parts on the other"
    EMPTY_CALLS = "tool_calls was None, empty or absent"
    CALL_KEYS = "keys of a call besides its id, name and arguments, or a single call that was not in a list"
    OTHER_KEYS = "keys that are no part of a message's identity"
    NUMBERS = "a number outside of arguments written differently, such as 1 and 1.0"
    MEDIA = "the same image written differently, such as its bytes on one side and its key on the other"
    OBJECT = "an object of a client library on one side and a mapping on the other"
    OUTER_WHITESPACE = (
        "white space around an assistant's content or reasoning",
        Choice(_without_outer_whitespace, gateway=True),
    )
    DROPPED_CONTENT = (
        "an assistant's content beside tool calls was not echoed",
        Choice(_without_content, only=_calls_alone, gateway=True),
    )
    DROPPED_REASONING = (
        "an assistant's reasoning was not echoed",
        Choice(_without_reasoning, only=_no_reasoning, gateway=True),
    )
    # Before the ids: what is left without those has no calls.
    ROUNDED_INTEGERS = (
        "an integer of a call's arguments came back as a double, which is rounded beyond 2**53",
        Choice(partial(_with_arguments, rounded), only=_all_doubles),
    )
    ADDED_NULLS = (
        "keys with null were added to the arguments of a call",
        Choice(partial(_with_arguments, without_nulls), only=_nulls_added),
    )
    RENAMED_TOOL_IDS = "tool call ids renamed consistently", Choice(_without_ids, gateway=True)


CHOICES = {row: row.choice for row in Forgiveness if row.choice}
"""How each optional difference is compared. If two explain a difference, the first is on the receipt."""
OPTIONAL = frozenset(CHOICES)
"""What is forgiven only if a policy names it."""


def exactly(value: Any) -> Any:
    """Return data that are equal only if they are written the same, except for the order of keys."""
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(exactly, value))
    written = repr(value) if isinstance(value, float) else value  # 0.0 == -0.0, written differently
    return type(value), written
