"""One request for a turn: sent in one piece or as a stream, and read by the same reader.

Ids that were received are never lost: an error after the first id holds them in `EngineError.partial`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from typing import Any, Protocol

import attrs

from tito_core import Ids, Message

from .protocol import (
    AbortedError,
    Delta,
    EngineAnswer,
    EngineError,
    InvalidReplyError,
    Reply,
    Sampling,
    Usage,
    Watch,
)
from .replies.chunks import Assembly, choice_text, chunk_logprobs
from .replies.invariants import FINISHES, Check
from .replies.sampling_mask import sampling_mask
from .routing import named_worker, new_request_id, routing_headers
from .wire import Seen, Wire

STREAM_KEYS: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
"""What makes an OpenAI route stream, with the token counts in its last chunk."""


class TurnStream(Protocol):
    """A streamed answer, put together event by event."""

    def take(self, check: Check, event: dict[str, Any]) -> Sequence[Delta]:
        """Add an event; return what is new in it."""

    def body(self) -> Any:
        """Return the body that would have come in one piece."""


@attrs.frozen
class Question:
    """The request with which the answer is compared.

    Attributes:
        sampling: The sampling parameters.
        sent: The prompt's ids; None where messages were sent.
        echo: Whether the answer was to repeat the prompt's ids.
    """

    sampling: Sampling
    sent: Ids | None = None
    echo: bool = True


class ChunkStream(Assembly):
    """A stream of OpenAI chunks; a subclass may read the deltas elsewhere."""

    def take(self, check: Check, event: dict[str, Any]) -> Sequence[Delta]:
        """Add a chunk; return what each of its choices brings."""
        deltas = []
        for choice in chunk_choices(check, event):
            ids = check.ids(choice, "token_ids") if choice.get("token_ids") is not None else ()
            values, index = chunk_logprobs(choice), choice.get("index", 0)
            logprobs = check.logprobs(values, len(ids)) if ids and len(values) == len(ids) else None
            deltas.append(Delta(ids=ids, logprobs=logprobs, text=choice_text(choice), index=index))
        self.join(check, event)
        return deltas

    def join(self, check: Check, chunk: Mapping[str, Any]) -> None:
        """Join a chunk to those before it; raises `InvalidReplyError` where its values do not fit theirs."""
        try:
            self.add(chunk)
        except (AttributeError, TypeError, ValueError):
            check.fail("a chunk's values have another type than those before it, or than the API allows")


@attrs.frozen(kw_only=True)
class TurnRequest:
    """One request for a turn; a subclass says how its answer is read.

    Attributes:
        wire: The server.
        path: The route.
        body: The request's body, without what makes it a stream.
        vocab_size: How many ids there are; None where it is unknown.
        conversation: The conversation's name, for routers (`Sampling.conversation`).
        request_id: The request's id, for logs.
    """

    wire: Wire
    path: str
    body: Mapping[str, Any]
    vocab_size: int | None = None
    conversation: str | None = None
    request_id: str = attrs.field(factory=new_request_id)

    def read(self, check: Check, body: Any) -> Reply:
        """Return the reply that a whole answer holds; of a stream, `body` is what its events add up to."""
        raise NotImplementedError

    def open_stream(self) -> TurnStream:
        """Return what puts a streamed answer together."""
        return ChunkStream()

    def check_ends(self, check: Check, body: Any) -> None:
        """Demand that every turn of a stream states why it ended; the stream's end mark alone does not.

        vLLM up to 0.31 ends an aborted stream like a finished one, but for the finish reason.
        """
        if any(choice.get("finish_reason") is None for choice in body["choices"]):
            raise aborted(check, "the stream ended before its turn did: the engine aborted it")

    def partial(self, check: Check, body: Any) -> Reply | None:
        """Return what was received of a turn when its stream broke; None where no id was received."""
        del check, body
        return None

    def echoed(self, reply: Reply) -> bool:
        """Whether the reply repeats the prompt's ids, and names its own ids when the prompt's are left out.

        Such a route need not repeat the next prompt (`HttpEngine._send`).
        """
        del reply
        return False

    @property
    def streamed_body(self) -> Mapping[str, Any]:
        """The body that requests a stream."""
        return {**self.body, **STREAM_KEYS}

    async def reply(self, watch: Watch | None) -> Reply:
        """Send the request; return the reply. With `watch`, stream it."""
        headers, answered = routing_headers(self.conversation, self.request_id), dict[str, str]()
        seen = answered.update
        try:
            if watch is None:
                answer = await self.wire.post(self.path, self.body, headers, seen)
                reply = self.read(self.check(answer), answer)
            else:
                reply = await self._streamed(headers, seen, watch)
        except EngineError as error:
            error.request_id = self.request_id
            error.partial = error.partial and self._named(error.partial, answered)
            raise
        return self._named(reply, answered)

    def _named(self, reply: Reply, answered: Mapping[str, str]) -> Reply:
        """Return a reply, and its siblings, with the request's id and the worker."""
        worker = reply.worker or named_worker(answered)
        named = [
            attrs.evolve(one, request_id=self.request_id, worker=worker) for one in (reply, *reply.siblings)
        ]
        return attrs.evolve(named[0], siblings=tuple(named[1:]))

    async def _streamed(self, headers: Mapping[str, str], seen: Seen, watch: Watch) -> Reply:
        stream = self.open_stream()
        try:
            async with aclosing(self.wire.stream(self.path, self.streamed_body, headers, seen)) as events:
                async for event in events:
                    for delta in stream.take(self.check(event), event):
                        if delta.ids or delta.text:
                            await watch(delta)
            body = stream.body()
            check = self.check(body)
            self.check_ends(check, body)
            return self.read(check, body)
        except EngineError as error:
            if error.partial is None:
                error.partial = self.partial(self.check(stream.body()), stream.body())
            raise

    @cached_property
    def where(self) -> str:
        """The request as errors name it."""
        return self.wire.where("POST", self.path)

    def check(self, answer: object) -> Check:
        """Return the checks of an answer."""
        return Check(self.where, EngineAnswer(200, answer), self.vocab_size)


def aborted(check: Check, why: str, partial: Reply | None = None) -> AbortedError:
    """Return the error for a turn that the engine aborted, with what was sampled of it."""
    hint = "what was sampled is in `partial`"
    error = AbortedError(f"{check.where}: {why}", check.answer, hint=hint, where=check.where)
    error.partial = partial
    return error


def chunk_choices(check: Check, chunk: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the choices of a chunk; each is of a turn, the first one where it has no index."""
    choices = check.typed(chunk.get("choices") or [], list, "choices")
    for choice in choices:
        if "index" in check.typed(choice, dict, "choice"):
            check.get(choice, "index", int)
    return choices


@attrs.frozen
class ReplyPart:
    """The received part of one turn.

    Attributes:
        ids: The sampled ids so far.
        logprobs: As they came; perhaps none, or fewer than ids.
        text: The text so far.
        message: The server's message so far; None where the route has none.
        finish_reason: As `Reply` has it; `abort` of a turn that had not ended.
        stop_reason: As `Reply` has it.
        kept: The ids of their sampling masks, as they came; None where none did.
    """

    ids: Sequence[int]
    logprobs: Sequence[object]
    text: str
    message: Message | None = None
    finish_reason: str = "abort"
    stop_reason: int | str | None = None
    kept: object = None

    def ended(self, choice: Mapping[str, Any]) -> ReplyPart:
        """Return the part with the end that a choice states: of several turns, some may have ended.

        >>> ReplyPart((7, 2), (), "a").ended({"finish_reason": "stop", "stop_reason": 2}).finish_reason
        'stop'
        """
        finish, stop = choice.get("finish_reason"), choice.get("stop_reason")
        named = FINISHES.get(finish, "abort") if isinstance(finish, str) else "abort"
        return attrs.evolve(
            self, finish_reason=named, stop_reason=stop if isinstance(stop, int | str) else None
        )


def partial_reply(
    check: Check, prompt_ids: Sequence[int], parts: Sequence[ReplyPart], raw: Mapping[str, Any]
) -> Reply | None:
    """Return the parts of a broken stream as a reply; None where no id was received.

    Log-probabilities, and sampling masks, are kept where each id has one.
    """
    if not any(part.ids for part in parts):
        return None
    sampled = sum(len(part.ids) for part in parts)
    usage = Usage(prompt_tokens=len(prompt_ids), completion_tokens=sampled)
    turns = []
    for part in parts:
        turn = Reply(
            prompt_ids=prompt_ids,
            completion_ids=tuple(part.ids),
            logprobs=None,
            message=part.message,
            text=part.text,
            finish_reason=part.finish_reason,
            stop_reason=part.stop_reason,
            usage=usage,
            raw=raw,
        )
        with suppress(InvalidReplyError):
            turn = attrs.evolve(turn, logprobs=check.logprobs(part.logprobs, len(part.ids)))
        with suppress(InvalidReplyError):
            if part.kept is not None:
                turn = attrs.evolve(turn, sampling_mask=sampling_mask(check, part.kept, part.ids))
        turns.append(turn)
    return attrs.evolve(turns[0], siblings=tuple(turns[1:]))
