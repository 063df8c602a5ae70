"""What an engine can be asked, and what it answers.

Wire spellings stay in the adapters. Everything here is said in the project's words: prompt ids, completion
ids, log-probabilities, finish reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from tito_core import Message, TitoError


@attrs.frozen(kw_only=True)
class Sampling:
    """How to sample; None leaves the engine's default."""

    max_tokens: int | None = None
    """The most ids to sample."""
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Strings that end a turn; the ids that spell them stay in the completion."""
    stop_ids: tuple[int, ...] = ()
    """Ids that end a turn, beside the model's own."""
    extra: Mapping[str, Any] = attrs.field(factory=dict)
    """Further request keys of one engine, sent as they are."""


@attrs.frozen(kw_only=True)
class Rendering:
    """What messages are rendered with besides themselves."""

    tools: tuple[Mapping[str, Any], ...] = ()
    template_args: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Usage:
    """What the engine counted."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    """Prompt ids that the engine had in its prefix cache, where it says so."""


@attrs.frozen(kw_only=True)
class Reply:
    """One sampled turn. Made by an adapter once every invariant holds; nothing in it is a guess."""

    prompt_ids: tuple[int, ...]
    """The ids that the engine says it saw."""
    completion_ids: tuple[int, ...]
    """The ids that it sampled, the stop among them if it sampled one."""
    logprobs: tuple[float | None, ...] | None
    """Natural-log probabilities, one an id; None where the engine sent a sentinel."""
    message: Message | None
    """The assistant message, where the engine parsed one."""
    text: str
    """The completion as text, where there is no message."""
    finish_reason: str
    """`stop`, `length`, `tool_calls` or `abort`."""
    usage: Usage
    raw: Mapping[str, Any] = attrs.field(repr=False)
    """The whole answer as it came."""

    @property
    def truncated(self) -> bool:
        """Whether the turn was cut short, so that no stop was sampled."""
        return self.finish_reason in ("length", "abort")


class Engine(Protocol):
    """An engine that keeps ids."""

    name: str

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return the ids of messages; raises `TemplateRefused` where the chat template rejects them."""

    async def from_messages(
        self, messages: Sequence[Message], rendering: Rendering, sampling: Sampling
    ) -> Reply:
        """Sample a turn after messages that the engine renders itself (MITO)."""

    async def from_ids(
        self, ids: Sequence[int], sampling: Sampling, rendering: Rendering | None = None
    ) -> Reply:
        """Sample a turn after exactly these ids (TITO).

        `rendering` is what the ids were rendered with, where the caller knows it. It changes no id, only how
        the message is parsed: without tools there is nothing that a sampled text could call.
        """

    async def aclose(self) -> None:
        """Let go of connections."""


@attrs.frozen
class Answer:
    """What an engine answered, kept for whoever must look into an error."""

    status: int
    body: Any = attrs.field(repr=False)


class EngineError(TitoError):
    """Something went wrong at or on the way to an engine."""

    def __init__(self, message: str, answer: Answer | None = None) -> None:
        """Say what happened; `answer` is what the engine sent, if it did."""
        super().__init__(message)
        self.answer = answer


class OverlongError(EngineError):
    """The prompt does not fit the model's context."""


class AuthenticationError(EngineError):
    """The engine refused the credentials."""


class RequestError(EngineError):
    """The engine refused the request: a wrong model, an unknown id, an unknown route."""


class UnreachableError(EngineError):
    """No answer came: connection refused, broken, or timed out. What was sampled is unknown."""


class ServerError(EngineError):
    """The engine failed while it worked on the request."""


class InvalidReplyError(EngineError):
    """The answer breaks an invariant: ids, log-probabilities and counts that do not agree."""


class EmptyReplyError(InvalidReplyError):
    """The answer holds no turn at all."""
