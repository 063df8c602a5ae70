"""What an engine can be asked, and what it answers.

Wire spellings stay in the adapters. Everything here is said in the project's words: prompt ids, completion
ids, log-probabilities, finish reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from tito_core import Message, TitoError
from tito_core.samples import RoutedExperts, WeightVersion


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
    n: int = 1
    """How many turns to sample after the same prompt; the others are the reply's `siblings`."""
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
class ModelLimits:
    """How much an engine's model takes; None where the engine does not say."""

    max_model_len: int | None = None
    """The most ids of prompt and completion together."""
    vocab_size: int | None = None
    """How many ids there are."""


@attrs.frozen(kw_only=True)
class Delta:
    """What came of a turn since the delta before, while the engine samples."""

    ids: tuple[int, ...] = ()
    """Ids may come without text: half a character, a special token, a tag."""
    logprobs: tuple[float | None, ...] | None = None
    """One an id, where the engine sends them along; else they stand in the reply."""
    text: str = ""
    """Further content. Text may come later than its ids."""
    index: int = 0
    """Which of `Sampling.n` turns."""


Watch = Callable[[Delta], Awaitable[None]]
"""Told of every delta as it comes."""


@attrs.frozen(kw_only=True)
class Reply:
    """One sampled turn. Made by an adapter once every invariant holds; nothing in it is a guess."""

    prompt_ids: Sequence[int]
    """The ids that the engine saw: those that it says, or those that were sent and counted by it."""
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
    """What the engine counted for the whole request, `siblings` among it."""
    stop_reason: int | str | None = None
    """The id or the string that ended the turn, where the engine names one."""
    weight_versions: tuple[WeightVersion, ...] = ()
    """Which weights sampled what, where the engine says so."""
    routed_experts: RoutedExperts | None = None
    siblings: tuple[Reply, ...] = ()
    """The other turns of the same request, where `Sampling.n` asked for some."""
    notices: tuple[str, ...] = ()
    """What the adapter did otherwise than asked, and what the reply lacks, in words that can be counted."""
    raw: Mapping[str, Any] = attrs.field(repr=False)
    """The whole answer as it came; of a stream, what its events amount to."""

    @property
    def truncated(self) -> bool:
        """Whether the turn was cut short, so that no stop was sampled."""
        return self.finish_reason in ("length", "abort")


class Engine(Protocol):
    """An engine that keeps ids.

    With `watch` a turn is streamed: `watch` is told of everything as it comes, and the reply is the one that
    would have come in one piece. Cancelling a call, by its cancel scope, aborts it at the engine. An error
    after the first id carries what was received in `partial`.
    """

    name: str
    keeps_ids: bool
    """Whether the engine keeps every conversation's ids itself and takes messages only."""

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return the ids of messages; raises `TemplateRefused` where the chat template rejects them."""

    async def from_messages(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after messages that the engine renders itself (MITO)."""

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after exactly these ids (TITO).

        `rendering` is what the ids were rendered with, where the caller knows it. It changes no id, only how
        the message is parsed: without tools there is nothing that a sampled text could call.
        """

    async def limits(self) -> ModelLimits:
        """Return how much the model takes; asked of the engine once."""

    async def aclose(self) -> None:
        """Let go of connections."""


@attrs.frozen
class EngineAnswer:
    """What an engine answered, kept for whoever must look into an error."""

    status: int
    body: Any = attrs.field(repr=False)


class EngineError(TitoError):
    """Something went wrong at or on the way to an engine."""

    partial: Reply | None = None
    """What was received of a turn before it broke, or the whole of one that cannot be made a message.

    None where no id was received. Its finish reason is `abort` unless it is whole."""

    def __init__(self, message: str, answer: EngineAnswer | None = None) -> None:
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


class TimedOutError(UnreachableError):
    """No answer came in time. The turn may still be sampled, and nobody will see it."""


class ServerError(EngineError):
    """The engine failed while it worked on the request."""


class AbortedError(EngineError):
    """The engine gave the request up: it was told to, or shut down."""


class UnsupportedError(EngineError):
    """This engine, or this version of it, cannot do what was asked. Nothing was sent."""


class InvalidReplyError(EngineError):
    """The answer breaks an invariant: ids, log-probabilities and counts that do not agree."""


class EmptyReplyError(InvalidReplyError):
    """The answer holds no turn at all."""
