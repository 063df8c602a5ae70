"""Streams of Anthropic's Messages: blocks that are begun, grow and end, one after the other.

How long the prompt is comes with the last event, which the API allows; before that nobody knows it.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from tito_io.dialects import errors
from tito_io.dialects.arguments import as_object
from tito_io.dialects.message_parts import Spoken, ToolCall
from tito_io.dialects.protocol import ParsedRequest, ReplyStamp, TurnAnswer
from tito_io.dialects.sse import event
from tito_io.dialects.stream_text import CertainText, StreamText
from tito_io.engines.protocol import Delta

from .answer import end, head, tool_use, usage

UNKNOWN = {"input_tokens": 0, "output_tokens": 0}
"""The counts before anything is counted."""


@attrs.define
class AnthropicStream:
    """One answer as a stream."""

    asked: ParsedRequest
    stamp: ReplyStamp
    screen: StreamText = attrs.field(init=False)
    index: int = attrs.field(default=-1, init=False)
    """Which block was begun last."""
    open: str = attrs.field(default="", init=False)
    """The type of the block that grows; empty where none does."""

    @screen.default
    def _reader(self) -> StreamText:
        return StreamText.of(self.stamp.reading, tools=bool(self.asked.tools), ordered=True)

    def start(self) -> bytes:
        """Return the event that says who answers."""
        blank: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": UNKNOWN}
        message = {**head(self.stamp.id, self.stamp.model), **blank}
        return _event("message_start", message=message)

    def delta(self, delta: Delta) -> bytes:
        """Return the events that a delta makes certain; turns beside the first are none of this API."""
        return self._told(self.screen.fed(delta)) if delta.index == 0 else b""

    def finish(self, answer: TurnAnswer) -> bytes:
        """Return what is left, why the turn ended, and the counts."""
        said = answer.choices[0]
        rest = self._told(self.screen.rest(said.message)) + self._closed()
        calls = [self._called(call) for call in Spoken.of(said.message).calls]
        last = _event("message_delta", delta=end(self.asked, said), usage=usage(answer.usage))
        return b"".join((rest, *calls, last, _event("message_stop")))

    def fail(self, status: int, kind: str, message: str) -> bytes:
        """Return an error in place of what is left."""
        return _event("error", error=errors.anthropic(status, kind, message))

    def ping(self) -> bytes:
        """Return a ping."""
        return _event("ping")

    def _told(self, piece: CertainText) -> bytes:
        """Return the events of a piece, the thought in front unless text was told before it."""
        late = self.open == "text"
        text = self._grown("text", piece.content, {}) if late and piece.content else b""
        thought = self._grown("thinking", piece.reasoning, {"signature": ""}) if piece.reasoning else b""
        return (
            text + thought + (self._grown("text", piece.content, {}) if piece.content and not late else b"")
        )

    def _grown(self, kind: str, text: str, blank: dict[str, Any]) -> bytes:
        """Return the events that add text to a block of this type, begun where it must be."""
        begun = b"" if self.open == kind else self._begun({"type": kind, kind: "", **blank})
        return begun + self._added({"type": f"{kind}_delta", kind: text})

    def _called(self, call: ToolCall) -> bytes:
        """Return the events of a call: it is whole when it is known to be one."""
        written = json.dumps(as_object(call.arguments), ensure_ascii=False)
        begun = self._begun(tool_use(call))
        return begun + self._added({"type": "input_json_delta", "partial_json": written}) + self._closed()

    def _begun(self, block: dict[str, Any]) -> bytes:
        closed = self._closed()
        self.index, self.open = self.index + 1, block["type"]
        return closed + _event("content_block_start", index=self.index, content_block=block)

    def _added(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self.index, delta=delta)

    def _closed(self) -> bytes:
        """Return the events that end the block that grows."""
        signature = {"type": "signature_delta", "signature": self.stamp.id}
        signed = self._added(signature) if self.open == "thinking" else b""
        stopped = _event("content_block_stop", index=self.index) if self.open else b""
        self.open = ""
        return signed + stopped


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)
