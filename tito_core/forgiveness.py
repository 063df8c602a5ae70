"""Differences between messages that do not count, by name."""

from __future__ import annotations

from enum import Enum


class Forgiveness(Enum):
    """A difference that did not count."""

    ABSENT = "a key was missing on one side and None on the other"
    EMPTY_CONTENT = "an assistant's content was None, empty or absent"
    TEXT_PART = "one text part against its string"
    ARGUMENTS = "arguments spelled differently: text or object, order of keys, spacing, format of numbers"
    REASONING_NAME = "reasoning against reasoning_content"
    EMPTY_REASONING = "reasoning was None, empty or absent"
    EMPTY_CALLS = "tool_calls was None, empty or absent"
    CALL_KEYS = "keys of a tool call beside its id, name and arguments, or a call that stands in no list"
    OTHER_KEYS = "keys that are no part of a message's identity"
    NUMBERS = "a number outside of arguments written differently, such as 1 and 1.0"
    OBJECT = "an object of a client library against a mapping"
    TRAILING_WHITESPACE = "white space at the end of an assistant's content (only where a policy says so)"
    DROPPED_REASONING = "an assistant's reasoning was not echoed (only where a policy says so)"
    RENAMED_TOOL_IDS = "tool call ids renamed consistently (only where a policy says so)"


OPTIONAL = frozenset(
    (Forgiveness.TRAILING_WHITESPACE, Forgiveness.DROPPED_REASONING, Forgiveness.RENAMED_TOOL_IDS)
)
"""What is forgiven only when a policy names it."""
