"""Streams of OpenAI's Responses: numbered events, item after item."""

from __future__ import annotations

from typing import Any

import attrs

from tito_io.dialects import errors
from tito_io.dialects.message_parts import Spoken, ToolCall
from tito_io.dialects.protocol import ParsedRequest, ReplyStamp, TurnAnswer
from tito_io.dialects.sse import COMMENT, event
from tito_io.dialects.stream_text import CertainText, StreamText
from tito_io.engines.protocol import Delta

from . import answer as bodies
from . import reasoning as thought

TEXT, THOUGHT = "response.output_text", "response.reasoning_text"
"""What the events of growing items begin with, by the kind of their text."""
UNSCORED: dict[str, Any] = {"logprobs": []}
"""Log-probabilities are told in the chat completions."""


@attrs.define
class ResponsesStream:
    """One answer as a stream."""

    asked: ParsedRequest
    stamp: ReplyStamp
    screen: StreamText = attrs.field(init=False)
    number: int = attrs.field(default=0, init=False)
    """The number of the next event."""
    items: list[dict[str, Any]] = attrs.field(factory=list, init=False)
    """The items that are done."""
    open: str = attrs.field(default="", init=False)
    """The kind of the item that grows; empty where none does."""
    texts: list[str] = attrs.field(factory=list, init=False)
    """What that item has so far."""

    @screen.default
    def _reader(self) -> StreamText:
        return StreamText.of(self.stamp.reading, tools=bool(self.asked.tools), ordered=True)

    def start(self) -> bytes:
        """Return the events that say that somebody answers."""
        response = self._response()
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def delta(self, delta: Delta) -> bytes:
        """Return the events that a delta makes certain; turns beside the first are none of this API."""
        return self._told(self.screen.fed(delta)) if delta.index == 0 else b""

    def finish(self, answer: TurnAnswer) -> bytes:
        """Return what is left, and the response."""
        spoken, state = Spoken.of(answer.choices[0].message), bodies.status(answer)
        rest = self._told(self.screen.rest(answer.choices[0].message))
        if not (self.items or self.open or spoken.calls):
            rest += self._begun(TEXT)
        closed = self._closed("completed" if spoken.calls else state)
        ends = [*("completed" for _ in spoken.calls[1:]), state]
        called = zip(spoken.calls, ends, strict=False)
        calls = [self._called(place, call, end) for place, (call, end) in enumerate(called)]
        response = {**bodies.whole(self.asked, answer), "output": self.items}
        return b"".join((rest, closed, *calls, self._event(f"response.{state}", response=response)))

    def fail(self, status: int, kind: str, message: str) -> bytes:
        """Return a failed response in place of what is left."""
        found = errors.openai(status, kind, message, None)
        error = {"code": errors.failure(status), "message": message, "type": found["type"]}
        response = {**self._response(), "status": "failed", "error": error, "output": self.items}
        return self._event("response.failed", response=response)

    def ping(self) -> bytes:
        """Return a comment."""
        return COMMENT

    def _response(self) -> dict[str, Any]:
        stamp = self.stamp
        return bodies.head(self.asked, stamp.id, stamp.created, stamp.model)

    def _told(self, piece: CertainText) -> bytes:
        """Return the events of a piece, the thought in front unless text was told before it."""
        parts = [(THOUGHT, piece.reasoning), (TEXT, piece.content)]
        ordered = reversed(parts) if self.open == TEXT else parts
        return b"".join(self._grown(kind, text) for kind, text in ordered if text)

    def _grown(self, kind: str, text: str) -> bytes:
        """Return the events that add text to an item of this kind, begun where it must be."""
        begun = b"" if self.open == kind else self._closed("completed") + self._begun(kind)
        self.texts.append(text)
        scored = UNSCORED if kind == TEXT else {}
        return begun + self._event(f"{kind}.delta", **self._where(), delta=text, **scored)

    def _begun(self, kind: str) -> bytes:
        """Return the events that begin an item and its only part."""
        self.open, self.texts = kind, []
        item = {**self._item(""), "content": [], "status": "in_progress"}
        added = self._event("response.output_item.added", output_index=len(self.items), item=item)
        return added + self._event("response.content_part.added", **self._where(), part=self._part(""))

    def _closed(self, state: str) -> bytes:
        """Return the events that end the item that grows, if one does."""
        if not self.open:
            return b""
        text, where = "".join(self.texts), self._where()
        scored = UNSCORED if self.open == TEXT else {}
        done = self._event(f"{self.open}.done", **where, text=text, **scored)
        parted = self._event("response.content_part.done", **where, part=self._part(text))
        item = {**self._item(text), "status": state}
        self.open = ""
        return done + parted + self._ended(item)

    def _called(self, place: int, call: ToolCall, state: str) -> bytes:
        """Return the events of a call: it is whole when it is known to be one."""
        item = {**bodies.call(self.stamp.id, place, call), "status": state}
        index, where = len(self.items), {"item_id": item["id"], "output_index": len(self.items)}
        blank = {**item, "arguments": "", "status": "in_progress"}
        name = "response.function_call_arguments"
        return b"".join(
            (
                self._event("response.output_item.added", output_index=index, item=blank),
                self._event(f"{name}.delta", **where, delta=call.arguments) if call.arguments else b"",
                self._event(f"{name}.done", **where, name=call.name, arguments=call.arguments),
                self._ended(item),
            )
        )

    def _ended(self, item: dict[str, Any]) -> bytes:
        self.items.append(item)
        return self._event("response.output_item.done", output_index=len(self.items) - 1, item=item)

    def _item(self, text: str) -> dict[str, Any]:
        make = bodies.message(self.stamp.id, text)
        return make if self.open == TEXT else bodies.reasoning(self.asked, self.stamp.id, text)

    def _part(self, text: str) -> dict[str, Any]:
        return bodies.part(text) if self.open == TEXT else thought.part(text)

    def _where(self) -> dict[str, Any]:
        return {"item_id": self._item("")["id"], "output_index": len(self.items), "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self.number = self.number, self.number + 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)
