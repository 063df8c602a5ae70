"""A committed turn: what was sent and sampled, and how it came about. It does not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tito_core import Step
from tito_core.samples import StoredCall


@attrs.frozen(kw_only=True)
class TurnOrigin:
    """How a turn came about."""

    dialect: str
    """Which API it was asked in."""
    route: str
    """`TITO` where the prompt went by ids, `MITO` where it went by messages, `KEPT`."""
    requested: float
    """When the request came, in seconds since 1970."""
    refusal: str | None = None
    """Why it went by messages although there was a step."""
    forgiven: tuple[str, ...] = ()
    """Which differences between the prompt and what was stored did not count."""
    expected: int = 0
    """How many of the prompt's ids an earlier turn had, so that the engine may have them cached."""
    cached: int | None = None
    """How many the engine found in its cache, where it says so."""
    stop_reason: int | str | None = None
    instructed: bool = False
    """Whether the first message is a response's own instructions, which the next one does not inherit."""
    asked: Mapping[str, Any] = attrs.field(factory=dict)
    """The request's body without messages and tools."""


@attrs.frozen(kw_only=True)
class Commit:
    """A node of a session."""

    call: StoredCall
    parent: str | None
    """The commit whose messages it goes on from; it shares what is the same."""
    response: str
    """The id of the response that told of it; turns of one request share it."""
    at: float
    """When it was committed, in seconds since 1970."""
    origin: TurnOrigin

    @property
    def name(self) -> str:
        """The node's name."""
        return self.call.name

    @property
    def step(self) -> Step:
        """Its messages and ids."""
        return self.call.step
