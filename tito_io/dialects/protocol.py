"""What a dialect is asked, and what it answers: translation alone, without IO, clocks or chance.

A client's request becomes a `ParsedRequest`; what a turn came to is a `TurnAnswer`, and
becomes a body or a stream again. Nothing that changes a meaning is dropped on the way: what cannot be
translated is refused by name, and what is accepted without effect is listed in `ParsedRequest.ignored`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import attrs

from tito_core import InputError, Message
from tito_io.engines.protocol import Delta, Reply, Usage

TokenText = Callable[[int], str]
"""Returns the text of one id; `token_id:N` stands for it where nobody can tell."""


def as_id(index: int) -> str:
    """Return an id as engines write one where a token's text belongs.

    >>> as_id(7)
    'token_id:7'
    """
    return f"token_id:{index}"


class UntranslatableError(InputError):
    """A request says what cannot be said in the project's words: a client's error, 400."""

    def __init__(self, field: str, why: str, instead: str) -> None:
        """Name the field as a path into the body, why it cannot be translated, and what to do instead."""
        super().__init__(f"{field}: {why}; {instead}")
        self.field, self.why, self.instead = field, why, instead


@attrs.frozen(kw_only=True)
class ParsedRequest:
    """What a request asks for, in the project's words."""

    messages: tuple[Message, ...]
    """Messages in the manner of OpenAI's chat API; those of `previous_response_id` are not among them."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tool definitions in the same manner; none where the client forbids calls for this turn."""
    sampling: Mapping[str, Any] = attrs.field(factory=dict)
    """Arguments as `tito_io.client.sampling.understood` takes them, `chat_template_kwargs` among them."""
    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    """Whether a chat stream ends with a chunk of counts."""
    logprobs: bool = False
    """Whether the answer tells log-probabilities."""
    return_token_ids: bool = False
    """Whether the answer tells ids."""
    tokens_as_ids: bool = False
    """Whether log-probabilities name ids in place of texts."""
    continue_final_message: bool = False
    """Whether the last message is to be continued and not answered."""
    previous_response_id: str | None = None
    """The response whose conversation goes on: its messages and its answer stand before these, and after this
    request's instructions. Instructions hold for their own request alone."""
    instructed: bool = False
    """Whether the first message is the request's instructions."""
    store: bool = False
    """Whether the response may be named in a later `previous_response_id`."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """The client's own notes."""
    ignored: tuple[str, ...] = ()
    """Fields that were accepted and have no effect, for the record; paths into the body."""
    body: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """The request as it came; some dialects echo parts of it."""


@attrs.frozen(kw_only=True)
class SampledMessage:
    """One sampled turn."""

    message: Message
    """The assistant message as the engine gave it; reasoning under either name."""
    finish_reason: str = attrs.field(validator=attrs.validators.in_(("stop", "length", "tool_calls")))
    """An aborted turn is no answer: tell of it as an error."""
    stop_reason: int | str | None = None
    completion_ids: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] | None = None

    @classmethod
    def of(cls, reply: Reply) -> Self:
        """Return what one reply says, its siblings aside."""
        return cls(
            message=reply.message or {"role": "assistant", "content": reply.text},
            finish_reason=reply.finish_reason,
            stop_reason=reply.stop_reason,
            completion_ids=reply.completion_ids,
            logprobs=reply.logprobs,
        )


@attrs.frozen(kw_only=True)
class TurnAnswer:
    """What a request came to."""

    id: str
    """The response's id: unique, and the one that its stream was begun with."""
    created: int
    """Seconds since 1970."""
    model: str
    choices: tuple[SampledMessage, ...] = attrs.field(validator=attrs.validators.min_len(1))
    """A turn, or as many as the request's `n`."""
    prompt_ids: Sequence[int]
    usage: Usage
    """Of the whole request."""
    token_text: TokenText = as_id

    @classmethod
    def of(cls, reply: Reply, *, id: str, created: int, model: str, token_text: TokenText = as_id) -> Self:  # noqa: A002  # the word of every API
        """Return the answer that a reply and its siblings make."""
        turns = tuple(SampledMessage.of(one) for one in (reply, *reply.siblings))
        return cls(
            id=id,
            created=created,
            model=model,
            choices=turns,
            prompt_ids=reply.prompt_ids,
            usage=reply.usage,
            token_text=token_text,
        )


@attrs.frozen(kw_only=True)
class StreamReading:
    """How the text of a stream's deltas is to be read, before the message is known.

    The default is right for every engine here, if late for some: what looks like a tag of a thought or of a
    call is held until its meaning is certain, at the latest until the turn is over.
    """

    thinking: bool = False
    """Whether the prompt leaves a thought open, so that the text begins inside it. (For raw text alone: after
    a server's own parser nothing closes the thought, and all is held to the end.)"""
    hidden_reasoning: bool = False
    """Whether there may be thoughts that no delta tells of, because a server's parser takes them out. Where
    the parts of an answer have an order, what follows a thought is then held to the end."""
    buffered: bool = False
    """Whether everything is held to the end."""


@attrs.frozen(kw_only=True)
class ReplyStamp:
    """What is known of an answer before it is there."""

    id: str
    created: int
    """Seconds since 1970."""
    model: str
    token_text: TokenText = as_id
    reading: StreamReading = StreamReading()


class StreamMismatchError(Exception):
    """What was streamed does not begin what the turn came to: tell the client with `AnswerStream.broken`."""


class AnswerStream(Protocol):
    """One answer as a stream of server-sent events; what it tells adds up to `Dialect.answer_body`."""

    def start(self) -> bytes:
        """Return the events that come before the first delta."""

    def delta(self, delta: Delta) -> bytes:
        """Return the events that a delta makes certain; perhaps none."""

    def finish(self, answer: TurnAnswer) -> bytes:
        """Return all events that are left; raises `StreamMismatchError` where they cannot make it right."""

    def fail(self, status: int, kind: str, message: str) -> bytes:
        """Return the events that end a stream which cannot go on."""

    def ping(self) -> bytes:
        """Return what keeps a connection alive and says nothing."""


class Dialect(Protocol):
    """One API. A dialect is a value and keeps nothing."""

    @property
    def name(self) -> str:
        """What the API is called in counts and records."""

    def parse(self, body: object) -> ParsedRequest:
        """Return what a request's body asks; raises `InputError`, mostly `UntranslatableError`."""

    def answer_body(self, asked: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
        """Return the body that answers in one piece."""

    def stream(self, asked: ParsedRequest, stamp: ReplyStamp) -> AnswerStream:
        """Begin a stream."""

    def error(self, status: int, kind: str, message: str, *, param: str | None = None) -> dict[str, Any]:
        """Return the body that says what went wrong; `kind` is a word for it, such as an error's class."""
