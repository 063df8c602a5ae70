"""What the adapter did otherwise than it was asked to, in words that can be counted."""

from __future__ import annotations

from enum import StrEnum


class Notice(StrEnum):
    """Something that the caller asked for and the server does not have."""

    FELL_BACK = "generate-is-closed"
    """The ids went by `/v1/completions`: the server has no generate route, or keeps it shut."""
    WHOLE = "came-whole"
    """The turn was not streamed: this version loses ids on the way when it streams this route."""
