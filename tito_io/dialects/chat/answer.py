"""Answers of Chat Completions: whole, or as a stream of chunks whose deltas add up to the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from tito_core import Message
from tito_io.dialects.message_parts import AssistantParts
from tito_io.dialects.protocol import (
    ParsedRequest,
    ReplyStamp,
    SampledMessage,
    StreamMismatchError,
    StreamReading,
    TurnAnswer,
)
from tito_io.dialects.stream_text import CertainText, StreamText
from tito_io.dialects.wire import DONE, event, logprob_entries, openai_error
from tito_io.engines.protocol import Delta, Usage

Entries = list[dict[str, Any]]
"""Log-probabilities, one entry per id."""


def answer_body(request: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
    """Return the body of a whole answer."""
    return {
        "id": answer.id,
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [_choice(request, answer, i, choice) for i, choice in enumerate(answer.choices)],
        "usage": _usage(answer.usage),
        **({"prompt_token_ids": list(answer.prompt_ids)} if request.return_token_ids else {}),
    }


def _choice(request: ParsedRequest, answer: TurnAnswer, index: int, choice: SampledMessage) -> dict[str, Any]:
    entries = _logprobs(request, answer, choice)
    return {
        "index": index,
        "message": {**message_body(choice.message), "refusal": None},
        "logprobs": None if entries is None else {"content": entries, "refusal": None},
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        **({"token_ids": list(choice.completion_ids)} if request.return_token_ids else {}),
    }


def message_body(message: Message) -> dict[str, Any]:
    """Return an assistant message in the client's form; null and empty content stay what they are.

    >>> message_body({"role": "assistant", "content": "", "reasoning": "hm"})
    {'role': 'assistant', 'content': '', 'reasoning': 'hm', 'reasoning_content': 'hm'}
    """
    parts = AssistantParts.of(message)
    return {
        "role": "assistant",
        "content": message.get("content"),
        **_reasoning(parts.reasoning),
        **({"tool_calls": [call.chat_form() for call in parts.calls]} if parts.calls else {}),
    }


def _reasoning(text: str) -> dict[str, str]:
    """Return reasoning under both of its names; nothing for an empty text."""
    return {"reasoning": text, "reasoning_content": text} if text else {}


def _logprobs(
    request: ParsedRequest, answer: TurnAnswer, choice: SampledMessage, begin: int = 0
) -> Entries | None:
    """Return the log-probabilities from id `begin` on; None where they are not wanted or not known."""
    if not request.logprobs or choice.logprobs is None:
        return None
    ids, values = choice.completion_ids[begin:], choice.logprobs[begin:]
    return logprob_entries(ids, values, answer.token_text, as_ids=request.tokens_as_ids)


def _usage(counted: Usage) -> dict[str, Any]:
    cached = counted.cached_tokens
    return {
        "prompt_tokens": counted.prompt_tokens,
        "completion_tokens": counted.completion_tokens,
        "total_tokens": counted.prompt_tokens + counted.completion_tokens,
        "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
    }


@attrs.define
class StreamedChoice:
    """The part of one streamed choice that was sent."""

    text: StreamText
    ids: list[int] = attrs.field(factory=list)
    """The ids that were sent, where they are wanted."""
    scored: int = 0
    """How many log-probabilities were sent."""
    sampled: int = 0
    """How many ids came in deltas."""


@attrs.define
class ChatStream:
    """One answer as a stream."""

    request: ParsedRequest
    stamp: ReplyStamp
    reading: StreamReading | None = attrs.field(default=None, init=False)
    choices: dict[int, StreamedChoice] = attrs.field(factory=dict, init=False)

    def start(self) -> bytes:
        """Return the chunk that names the role; those of further choices come with their first delta."""
        return self._role(0)

    def ping(self) -> bytes:
        """Return a chunk with an empty delta. It has a choice, since clients look at the first one."""
        return self._chunk(0, {})

    def delta(self, delta: Delta) -> bytes:
        """Return the chunks that a delta makes certain."""
        opened = self._open(delta.index)
        choice = self.choices[delta.index]
        text = choice.text.feed(delta)
        entries = self._delta_logprobs(choice, delta)
        ids = list(delta.ids) if self.request.return_token_ids else []
        choice.ids += ids
        choice.sampled += len(delta.ids)
        return opened + self._text_chunks(delta.index, _text_deltas(text), entries, ids)

    def finish(self, answer: TurnAnswer) -> bytes:
        """Return what is left, the token counts where they are wanted, and the end."""
        rest = [self._finish_choice(answer, i, choice) for i, choice in enumerate(answer.choices)]
        if self.request.include_usage:
            rest.append(self._event(choices=[], usage=_usage(answer.usage)))
        return b"".join((*rest, DONE))

    def fail(self, status: int, kind: str, message: str) -> bytes:
        """Return an error in place of what is left."""
        return event({"error": openai_error(status, kind, message, None)}) + DONE

    def _open(self, index: int) -> bytes:
        """Return the chunk that begins a further choice, once."""
        if index in self.choices:
            return b""
        tools = bool(self.request.tools)
        self.choices[index] = StreamedChoice(StreamText.of(self.reading, tools=tools, ordered=False))
        return self._role(index) if index else b""

    def _role(self, index: int) -> bytes:
        return self._chunk(index, {"role": "assistant"})

    def _delta_logprobs(self, choice: StreamedChoice, delta: Delta) -> Entries:
        """Return the log-probabilities of a delta, unless those of earlier ids are missing still."""
        # Clients append them: after a gap, all that are left come with the last chunk.
        if not self.request.logprobs or delta.logprobs is None or choice.scored != choice.sampled:
            return []
        choice.scored += len(delta.ids)
        as_ids = self.request.tokens_as_ids
        return logprob_entries(delta.ids, delta.logprobs, self.stamp.token_text, as_ids=as_ids)

    def _finish_choice(self, answer: TurnAnswer, index: int, choice: SampledMessage) -> bytes:
        """Return what is left of a choice, and the chunk with its finish reason."""
        opened = self._open(index)
        sent = self.choices[index]
        if list(choice.completion_ids[: len(sent.ids)]) != sent.ids:
            raise StreamMismatchError("the turn's ids do not begin with those that were streamed")
        ids = list(choice.completion_ids[len(sent.ids) :]) if self.request.return_token_ids else []
        deltas = _text_deltas(sent.text.remaining(choice.message))
        if choice.message.get("content") == "":
            deltas.append({"content": ""})
        entries = _logprobs(self.request, answer, choice, sent.scored)
        rest = self._text_chunks(index, deltas, entries, ids)
        # OpenAI streams one call at a time, and LlamaIndex reads the first call of a chunk alone.
        for place, call in enumerate(AssistantParts.of(choice.message).calls):
            rest += self._chunk(index, {"tool_calls": [{"index": place, **call.chat_form()}]})
        reason = {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
        last: dict[str, Any] = {"index": index, "delta": {}, "logprobs": None, **reason}
        with_prompt = self.request.return_token_ids and index == 0
        prompt = {"prompt_token_ids": list(answer.prompt_ids)} if with_prompt else {}
        return opened + rest + self._event(choices=[last], **prompt)

    def _text_chunks(
        self, index: int, deltas: Sequence[dict[str, Any]], entries: Entries | None, ids: Sequence[int]
    ) -> bytes:
        """Return chunks of text; log-probabilities and ids are in the first, which may have no text."""
        if not deltas:
            return self._chunk(index, {}, entries, ids) if entries or ids else b""
        first, *others = deltas
        return self._chunk(index, first, entries, ids) + b"".join(self._chunk(index, one) for one in others)

    def _chunk(
        self, index: int, delta: dict[str, Any], entries: Entries | None = None, ids: Sequence[int] = ()
    ) -> bytes:
        logprobs = {"content": entries, "refusal": None} if entries else None
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        return self._event(choices=[{**choice, **({"token_ids": ids} if ids else {})}])

    def _event(self, **fields: Any) -> bytes:
        stamp, kind = self.stamp, "chat.completion.chunk"
        head = {"id": stamp.id, "object": kind, "created": stamp.created, "model": stamp.model}
        return event({**head, **fields})


def _text_deltas(text: CertainText) -> list[dict[str, Any]]:
    """Return reasoning, then content. Together in one delta, clients take them for text in either order."""
    return [one for one in (_reasoning(text.reasoning), {"content": text.content}) if any(one.values())]
