"""What a reply cannot show by its ids, in words that can be counted.

These are values on the reply and no warnings: where warnings are errors, a warning would lose the turn.
"""

from __future__ import annotations

from enum import StrEnum


class DynamoNotice(StrEnum):
    """Something about a turn that the caller should know."""

    NO_LOGPROBS = "no-logprobs"
    """Log-probabilities were asked for, and none came that are as many as the ids."""
    MIGRATED = "migrated"
    """A worker died, another went on: a seed no longer says what was sampled, and usage counts twice what the
    first had sampled."""
    READ_FROM_IDS = "read-from-ids"
    """The engine's message lacks a part of what was sampled, or has a call that was not, so the message was
    made from the ids."""
    UNSAID = "unsaid"
    """The engine's message lacks a part of what was sampled, such as a malformed call, or has a call that was
    not. It stands as it came: without a model folder nothing better can be made of the ids."""
