"""Dialects: translate requests into `ParsedRequest`, and a `TurnAnswer` into a body or a stream.

A dialect is pure: no IO, no clock, no randomness. Nothing that changes a meaning is dropped on the way. What
cannot be translated is an error that names the field; what is accepted without effect is listed in
`ParsedRequest.ignored`, and is an error where the dialect is strict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import attrs

from tito_core import InputError, Message
from tito_io.engines.protocol import Delta, Reply, Usage

TokenText = Callable[[int], str]
"""Returns the text of one id."""


def as_id(index: int) -> str:
    """Return `token_id:N`, which engines write where a token's text is not known.

    >>> as_id(7)
    'token_id:7'
    """
    return f"token_id:{index}"


class UntranslatableError(InputError):
    """A request that cannot be translated: the client's mistake, HTTP status 400.

    Attributes:
        field: The field, as a path into the body.
        why: Why it cannot be translated.
        instead: What to do instead.
    """

    def __init__(self, field: str, why: str, instead: str) -> None:
        """Put the three parts together as the error's message."""
        super().__init__(f"{field}: {why}; {instead}")
        self.field, self.why, self.instead = field, why, instead


@attrs.frozen(kw_only=True)
class ParsedRequest:
    """A client's request in the project's values.

    Attributes:
        messages: Messages in the form of OpenAI's chat API, without those of `previous_response_id`.
        tools: Definitions of the tools that the turn may call, in the same form.
        forbidden_tools: Those of tools that the client declares, and forbids to call in this turn.
        sampling: Sampling arguments as `tito_io.client.sampling` reads them, with `chat_template_kwargs`.
        model: The model that the client names.
        stream: Whether the answer is streamed.
        include_usage: Whether a chat stream ends with a chunk of token counts.
        logprobs: Whether the answer has log-probabilities.
        return_token_ids: Whether the answer has token ids.
        tokens_as_ids: Whether log-probabilities name ids in place of texts.
        continue_final_message: The field by which the client says that the last message is to be continued,
            such as `messages[3].prefix`; None where it is to be answered. The answer has what is new alone.
        previous_response_id: The response whose conversation goes on. Its messages and its answer come before
            these messages, but after this request's instructions, which hold for this request alone.
        instructed: Whether the first message is the request's instructions.
        compacting: Whether the turn is a summary, which replaces the conversation in later requests.
        call_items: How the answer names calls of tools that the API does not treat as functions, by the name
            of the function that each is offered as.
        store: Whether a later request may name the response in `previous_response_id`.
        metadata: The client's own notes.
        ignored: What was accepted without effect: paths into the body, without indexes.
        body: The request as it came, without nulls; some dialects repeat parts of it.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    forbidden_tools: tuple[Mapping[str, Any], ...] = ()
    sampling: Mapping[str, Any] = attrs.field(factory=dict)
    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    return_token_ids: bool = False
    tokens_as_ids: bool = False
    continue_final_message: str | None = None
    previous_response_id: str | None = None
    instructed: bool = False
    compacting: bool = False
    call_items: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    store: bool = False
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    ignored: tuple[str, ...] = ()
    body: Mapping[str, Any] = attrs.field(factory=dict, repr=False)


@attrs.frozen(kw_only=True)
class SampledMessage:
    """One sampled turn.

    Attributes:
        message: The assistant message as the engine gave it; reasoning under either of its names.
        finish_reason: `stop`, `length` or `tool_calls`. An aborted turn is an error, not an answer.
        stop_reason: The id or string that ended the turn, where the engine names one.
        completion_ids: The sampled ids.
        logprobs: One natural-log probability per completion id; None where the engine gave none.
    """

    message: Message
    finish_reason: str = attrs.field(validator=attrs.validators.in_(("stop", "length", "tool_calls")))
    stop_reason: int | str | None = None
    completion_ids: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] | None = None

    @classmethod
    def of(cls, reply: Reply) -> Self:
        """Return the turn of one reply, without its siblings."""
        return cls(
            message=reply.message or {"role": "assistant", "content": reply.text},
            finish_reason=reply.finish_reason,
            stop_reason=reply.stop_reason,
            completion_ids=reply.completion_ids,
            logprobs=reply.logprobs,
        )


@attrs.frozen(kw_only=True)
class TurnAnswer:
    """The answer to one request.

    Attributes:
        id: The response's id: unique, and the one that its stream was begun with.
        created: Seconds since 1970.
        model: The model's name.
        choices: One sampled turn, or as many as the request's `n`.
        prompt_ids: Token ids of the prompt.
        usage: Token counts of the whole request.
        token_text: Returns the text of one id.
    """

    id: str
    created: int
    model: str
    choices: tuple[SampledMessage, ...] = attrs.field(validator=attrs.validators.min_len(1))
    prompt_ids: Sequence[int]
    usage: Usage
    token_text: TokenText = as_id

    @classmethod
    def of(
        cls,
        reply: Reply,
        *,
        id: str,  # noqa: A002  # the name that every API has for it
        created: int,
        model: str,
        token_text: TokenText = as_id,
    ) -> Self:
        """Return the answer that a reply and its siblings make."""
        return cls(
            id=id,
            created=created,
            model=model,
            choices=tuple(SampledMessage.of(one) for one in (reply, *reply.siblings)),
            prompt_ids=reply.prompt_ids,
            usage=reply.usage,
            token_text=token_text,
        )


@attrs.frozen(kw_only=True)
class StreamReading:
    """How the text of a stream's deltas is read before the message is known.

    The defaults are right for every engine. Text that looks like a tag is then held back until its meaning is
    certain, at the latest until the turn is over; the other values only make a stream quicker or safer.

    Attributes:
        thinking: Whether the prompt leaves reasoning open, so that the text begins inside it. For raw text
            alone: after a server's own parser nothing closes the reasoning, and everything waits for the end.
        hidden_reasoning: Whether there may be reasoning that is in no delta, because a server's parser takes
            it out. Where the API fixes the order of an answer's parts, text then waits for the end.
        buffered: Whether everything waits for the end.
    """

    thinking: bool = False
    hidden_reasoning: bool = False
    buffered: bool = False


@attrs.frozen(kw_only=True)
class ReplyStamp:
    """The facts about an answer that are known before it is sampled.

    Attributes:
        id: The response's id.
        created: Seconds since 1970.
        model: The model's name.
        token_text: Returns the text of one id.
    """

    id: str
    created: int
    model: str
    token_text: TokenText = as_id


class StreamMismatchError(Exception):
    """The final message does not begin with what was streamed of it; `AnswerStream.fail` ends the stream."""


class AnswerStream(Protocol):
    """One answer as a stream of server-sent events, which add up to `Dialect.answer_body`.

    Attributes:
        reading: How the text of deltas is read; None for the defaults. It is set before the first delta: a
            stream may begin long before it is known.
    """

    reading: StreamReading | None

    def start(self) -> bytes:
        """Return the events that come before the first delta."""

    def ping(self) -> bytes:
        """Return an event without content, which clients count: they break off a stream without events.

        It may come whenever the stream has begun and is not finished.
        """

    def delta(self, delta: Delta) -> bytes:
        """Return the events that a delta makes certain, which may be none."""

    def finish(self, answer: TurnAnswer) -> bytes:
        """Return all events that are left; raises `StreamMismatchError` where they do not fit those sent."""

    def fail(self, status: int, kind: str, message: str) -> bytes:
        """Return the events that end a stream with an error."""


class Dialect(Protocol):
    """One client API. A dialect is a value without state."""

    @property
    def name(self) -> str:
        """The API's name in counts and records."""

    def parse(self, body: object) -> ParsedRequest:
        """Parse a request's body; raises `InputError`, mostly `UntranslatableError`."""

    def answer_body(self, request: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
        """Return the body of an answer in one piece."""

    def stream(self, request: ParsedRequest, stamp: ReplyStamp) -> AnswerStream:
        """Begin an answer as a stream."""

    def error(self, status: int, kind: str, message: str, *, param: str | None = None) -> dict[str, Any]:
        """Return an error body; `kind` is the error's code, such as `bad_request`."""
