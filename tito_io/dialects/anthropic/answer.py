"""Answers of Anthropic's Messages: whole, or as a stream of blocks, one after the other.

In a stream the prompt's length comes with the last event, as the API allows: it is not known before.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from tito_core.normalization.canonical import calls_in
from tito_io.dialects.message_parts import AssistantParts, ToolCall, arguments_object
from tito_io.dialects.protocol import ParsedRequest, SampledMessage, TurnAnswer
from tito_io.dialects.stream_text import OrderedStream
from tito_io.dialects.wire import anthropic_error, event
from tito_io.engines.protocol import Usage


def answer_body(request: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
    """Return the body of a whole answer."""
    choice = answer.choices[0]
    parts = AssistantParts.of(choice.message)
    content: list[dict[str, Any]] = []
    if parts.reasoning:
        content.append({"type": "thinking", "thinking": parts.reasoning, "signature": answer.id})
    if parts.content:
        content.append({"type": "text", "text": parts.content})
    content += ({**_tool_use(call), "input": arguments_object(call.arguments)} for call in parts.calls)
    head, stop = _head(answer.id, answer.model), _stop(request, choice)
    return {**head, "content": content, **stop, "usage": usage(answer.usage)}


def _head(identifier: str, model: str) -> dict[str, Any]:
    return {"id": identifier, "type": "message", "role": "assistant", "model": model}


def _tool_use(call: ToolCall) -> dict[str, Any]:
    """Return the block of a tool call with empty input."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}


def _stop(request: ParsedRequest, choice: SampledMessage) -> dict[str, Any]:
    """Return why a turn ended: the request's stop sequence, or the engine's reason in the API's words."""
    wanted = request.sampling.get("stop") or ()
    reason = choice.stop_reason
    sequence = reason if isinstance(reason, str) and reason in wanted else None
    if choice.finish_reason == "length":
        word = "max_tokens"
    elif calls_in(choice.message):
        word = "tool_use"  # whatever the engine calls it: engines differ in the finish reason of such a turn
    else:
        word = "end_turn" if sequence is None else "stop_sequence"
    return {"stop_reason": word, "stop_sequence": sequence}


def usage(counted: Usage) -> dict[str, Any]:
    """Return the token counts. In this API, input tokens are without those from the prefix cache.

    >>> usage(Usage(prompt_tokens=10, completion_tokens=2, cached_tokens=8))["input_tokens"]
    2
    """
    cached = counted.cached_tokens or 0
    return {
        "input_tokens": counted.prompt_tokens - cached,
        "output_tokens": counted.completion_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
    }


@attrs.define
class AnthropicStream(OrderedStream):
    """One answer as a stream of blocks."""

    REASONING, CONTENT = "thinking", "text"

    index: int = attrs.field(default=-1, init=False)
    """The number of the block that was opened last."""

    def start(self) -> bytes:
        """Return the event that begins the message."""
        unknown = {"input_tokens": 0, "output_tokens": 0}
        blank: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": unknown}
        return _event("message_start", message={**_head(self.stamp.id, self.stamp.model), **blank})

    def ping(self) -> bytes:
        """Return the API's own event for it."""
        return _event("ping")

    def finish(self, answer: TurnAnswer) -> bytes:
        """Return what is left, the stop reason and the token counts."""
        choice = answer.choices[0]
        rest = self.send(self.text.remaining(choice.message)) + self._close()
        for call in AssistantParts.of(choice.message).calls:
            # A call is sent in one piece: its arguments are an object only once complete.
            written = json.dumps(arguments_object(call.arguments), ensure_ascii=False)
            rest += self._open_block(_tool_use(call))
            rest += self._block_delta({"type": "input_json_delta", "partial_json": written}) + self._close()
        last = _event("message_delta", delta=_stop(self.request, choice), usage=usage(answer.usage))
        return rest + last + _event("message_stop")

    def fail(self, status: int, kind: str, message: str) -> bytes:
        """Return an error in place of what is left."""
        return _event("error", error=anthropic_error(status, kind, message))

    def open_part(self, kind: str) -> bytes:
        """Return the events that close the open block, and open one of this type."""
        return self._open_block({"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})})

    def grow(self, kind: str, more: str) -> bytes:
        """Return the event that adds text to the open block."""
        return self._block_delta({"type": f"{kind}_delta", kind: more})

    def _open_block(self, block: dict[str, Any]) -> bytes:
        closed = self._close()
        self.index, self.open = self.index + 1, block["type"]
        return closed + _event("content_block_start", index=self.index, content_block=block)

    def _block_delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self.index, delta=delta)

    def _close(self) -> bytes:
        """Return the events that close the open block, if there is one."""
        signature = {"type": "signature_delta", "signature": self.stamp.id}
        signed = self._block_delta(signature) if self.open == "thinking" else b""
        stopped = _event("content_block_stop", index=self.index) if self.open else b""
        self.open = ""
        return signed + stopped


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)
