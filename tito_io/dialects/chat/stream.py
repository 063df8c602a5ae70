"""Streams of Chat Completions: chunks whose deltas add up to the message."""

from __future__ import annotations

from typing import Any

import attrs

from tito_io.dialects import errors
from tito_io.dialects.message_parts import Spoken
from tito_io.dialects.protocol import (
    ParsedRequest,
    ReplyStamp,
    SampledMessage,
    StreamMismatchError,
    TurnAnswer,
)
from tito_io.dialects.sse import COMMENT, DONE, event
from tito_io.dialects.stream_text import CertainText, StreamText
from tito_io.dialects.tokens import entries
from tito_io.engines.protocol import Delta

from .answer import logprobs, reasoning, usage


@attrs.define
class ChatStreamChoice:
    """One turn of several, while it is told."""

    screen: StreamText
    ids: list[int] = attrs.field(factory=list)
    """The ids that were told, where they are asked for."""
    scored: int = 0
    """How many log-probabilities were told."""
    sampled: int = 0
    """How many ids came in deltas."""


@attrs.define
class ChatStream:
    """One answer as a stream."""

    asked: ParsedRequest
    stamp: ReplyStamp
    choices: dict[int, ChatStreamChoice] = attrs.field(factory=dict, init=False)

    def start(self) -> bytes:
        """Return the chunk that says whose turn it is; those of other choices come with their first delta."""
        return self._opened(0)

    def delta(self, delta: Delta) -> bytes:
        """Return the chunks that a delta makes certain."""
        opened = self._opened(delta.index) if delta.index not in self.choices else b""
        choice = self.choices[delta.index]
        piece = choice.screen.fed(delta)
        scores = self._scores(choice, delta)
        ids = list(delta.ids) if self.asked.return_token_ids else []
        choice.ids += ids
        choice.sampled += len(delta.ids)
        if not (piece.reasoning or piece.content or ids or scores):
            return opened
        return opened + self._chunk(delta.index, _delta(piece), scores, ids)

    def finish(self, answer: TurnAnswer) -> bytes:
        """Return what is left, the counts where they are asked for, and the end."""
        told = [self._finished(answer, place, said) for place, said in enumerate(answer.choices)]
        counts = {"choices": [], "usage": usage(answer.usage)}
        last = [event({**self._fields(), **counts})] if self.asked.include_usage else []
        return b"".join((*told, *last, DONE))

    def fail(self, status: int, kind: str, message: str) -> bytes:
        """Return an error in place of what is left."""
        return event({"error": errors.openai(status, kind, message, None)}) + DONE

    def ping(self) -> bytes:
        """Return a comment."""
        return COMMENT

    def _opened(self, place: int) -> bytes:
        tools = bool(self.asked.tools)
        self.choices[place] = ChatStreamChoice(StreamText.of(self.stamp.reading, tools=tools, ordered=False))
        return self._chunk(place, {"role": "assistant"})

    def _scores(self, choice: ChatStreamChoice, delta: Delta) -> list[dict[str, Any]]:
        """Return the log-probabilities of a delta, where those of all ids before it were told."""
        if not self.asked.logprobs or delta.logprobs is None or choice.scored != choice.sampled:
            return []
        choice.scored += len(delta.ids)
        return entries(delta.ids, delta.logprobs, self.stamp.token_text, as_ids=self.asked.tokens_as_ids)

    def _finished(self, answer: TurnAnswer, place: int, said: SampledMessage) -> bytes:
        opened = self._opened(place) if place not in self.choices else b""
        choice = self.choices[place]
        left = list(said.completion_ids[len(choice.ids) :]) if self.asked.return_token_ids else []
        if list(said.completion_ids[: len(choice.ids)]) != choice.ids:
            raise StreamMismatchError("the turn's ids do not begin with those that were streamed")
        piece, scores = choice.screen.rest(said.message), logprobs(self.asked, answer, said, choice.scored)
        delta = {**_delta(piece), **_calls(said)}
        if said.message.get("content") == "":
            delta = {"content": "", **delta}
        found = scores["content"] if scores else []
        rest = self._chunk(place, delta, found, left) if delta or left or found else b""
        return opened + rest + self._end(answer, place, said)

    def _end(self, answer: TurnAnswer, place: int, said: SampledMessage) -> bytes:
        """Return the chunk that says why a turn ended."""
        end = {"finish_reason": said.finish_reason, "stop_reason": said.stop_reason}
        prompt = {"prompt_token_ids": list(answer.prompt_ids)}
        choice: dict[str, Any] = {"index": place, "delta": {}, "logprobs": None, **end}
        told = prompt if self.asked.return_token_ids and place == 0 else {}
        return event({**self._fields(), "choices": [choice], **told})

    def _chunk(
        self,
        place: int,
        delta: dict[str, Any],
        scores: list[dict[str, Any]] | None = None,
        ids: list[int] | None = None,
    ) -> bytes:
        found = {"content": scores, "refusal": None} if scores else None
        choice = {"index": place, "delta": delta, "logprobs": found, "finish_reason": None}
        told = {"token_ids": ids} if ids else {}
        return event({**self._fields(), "choices": [{**choice, **told}]})

    def _fields(self) -> dict[str, Any]:
        stamp = self.stamp
        kind = "chat.completion.chunk"
        return {"id": stamp.id, "object": kind, "created": stamp.created, "model": stamp.model}


def _delta(piece: CertainText) -> dict[str, Any]:
    return {**reasoning(piece.reasoning), **({"content": piece.content} if piece.content else {})}


def _calls(said: SampledMessage) -> dict[str, Any]:
    calls = Spoken.of(said.message).calls
    return {"tool_calls": [{"index": i, **call.wire()} for i, call in enumerate(calls)]} if calls else {}
