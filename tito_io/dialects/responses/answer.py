"""Answers of OpenAI's Responses: whole, or as a stream of numbered events, item after item."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import attrs

from tito_io.dialects.message_parts import AssistantParts, ToolCall, seal
from tito_io.dialects.protocol import ParsedRequest, TurnAnswer
from tito_io.dialects.stream_text import OrderedStream
from tito_io.dialects.wire import event, openai_error
from tito_io.engines.protocol import Delta, Usage

from .compaction import compacted, compaction_item
from .request import ENCRYPTED
from .tools import CALL, CUSTOM_CALL, SEARCH_CALL, call_item

REPEATED = (
    *("instructions", "max_output_tokens", "max_tool_calls", "previous_response_id", "prompt_cache_key"),
    *("reasoning", "safety_identifier", "temperature", "text", "top_p", "truncation", "user"),
)
"""Fields of a request that the response repeats."""

PREFIXES = {CALL: "fc", CUSTOM_CALL: "ctc", SEARCH_CALL: "tsc"}
"""How the ids of calls begin, by their type."""
CALL_EVENTS = {
    CALL: ("arguments", "response.function_call_arguments"),
    CUSTOM_CALL: ("input", "response.custom_tool_call_input"),
}
"""The field of a call's text, and how the events that bring it begin."""


def answer_body(request: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
    """Return the body of a whole answer."""
    status = _status(answer)
    return {
        **_head(request, answer.id, answer.created, answer.model),
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": _output(request, answer),
        "usage": _usage(answer.usage),
    }


def _status(answer: TurnAnswer) -> str:
    return "incomplete" if answer.choices[0].finish_reason == "length" else "completed"


def _head(request: ParsedRequest, identifier: str, created: int, model: str) -> dict[str, Any]:
    """Return a response without output."""
    body = request.body
    return {
        **{name: body.get(name) for name in REPEATED},
        "id": identifier,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "metadata": dict(request.metadata),
        "model": model,
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "store": request.store,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "usage": None,
    }


def _output(request: ParsedRequest, answer: TurnAnswer) -> list[dict[str, Any]]:
    """Return the items of a turn; the last one is incomplete where the turn was cut."""
    if request.compacting:
        return [compaction_item(answer)]
    parts = AssistantParts.of(answer.choices[0].message)
    empty = not (parts.content or parts.calls or parts.reasoning)
    items = [
        *([_reasoning_item(request, answer.id, parts.reasoning)] if parts.reasoning else []),
        *([_message_item(answer.id, parts.content)] if parts.content or empty else []),
        *(_call_item(request, answer.id, place, call) for place, call in enumerate(parts.calls)),
    ]
    return [*items[:-1], {**items[-1], "status": _status(answer)}]


def named_items(answer: TurnAnswer) -> dict[str, dict[str, Any]]:
    """Return the items that an answer may have had, by their ids: those of a turn, and that of a summary.

    Every call is that of a function, whatever its tool was: as messages they are the same.
    """
    request, parts = ParsedRequest(messages=()), AssistantParts.of(answer.choices[0].message)
    items = [_reasoning_item(request, answer.id, parts.reasoning), _message_item(answer.id, parts.content)]
    items += [compaction_item(answer)] if parts.content.strip() else []
    calls = {
        f"{prefix}_{answer.id}_{place}": _call_item(request, answer.id, place, call)
        for place, call in enumerate(parts.calls)
        for prefix in PREFIXES.values()
    }
    return {item["id"]: item for item in items} | calls


def _message_item(identifier: str, text: str) -> dict[str, Any]:
    head = {"id": f"msg_{identifier}", "type": "message", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {**head, "content": [part]}


def _reasoning_item(request: ParsedRequest, identifier: str, text: str) -> dict[str, Any]:
    """Return the item of an answer's reasoning, with `encrypted_content` where the client wants it.

    >>> asked = ParsedRequest(messages=(), body={"include": [ENCRYPTED]})
    >>> _reasoning_item(asked, "1", "hm")["encrypted_content"]
    'tito:aG0='
    """
    head = {"id": f"rs_{identifier}", "type": "reasoning", "summary": [], "status": "completed"}
    encrypted = seal(text) if ENCRYPTED in request.body.get("include", ()) else None
    part = {"type": "reasoning_text", "text": text}
    return {**head, "content": [part], "encrypted_content": encrypted}


def _call_item(request: ParsedRequest, identifier: str, place: int, call: ToolCall) -> dict[str, Any]:
    item = call_item(call, request.call_items)
    return {"id": f"{PREFIXES[item['type']]}_{identifier}_{place}", **item, "status": "completed"}


def compact_body(request: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
    """Return the body of an answer of `/responses/compact`."""
    return compacted(request, answer, _usage(answer.usage))


def _usage(counted: Usage) -> dict[str, Any]:
    # How many ids are reasoning is not known; the API's clients require a number.
    return {
        "input_tokens": counted.prompt_tokens,
        "input_tokens_details": {"cached_tokens": counted.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": counted.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counted.prompt_tokens + counted.completion_tokens,
    }


@attrs.define
class ResponsesStream(OrderedStream):
    """One answer as a stream of items; a kind is how the events of a growing item begin."""

    REASONING, CONTENT = "response.reasoning_text", "response.output_text"

    number: int = attrs.field(default=0, init=False)
    """The number of the next event."""
    items: list[dict[str, Any]] = attrs.field(factory=list, init=False)
    """The items that are complete."""
    texts: list[str] = attrs.field(factory=list, init=False)
    """The text of the open item so far."""

    def start(self) -> bytes:
        """Return the events that begin the response."""
        return self._event("response.created", response=self._response()) + self.ping()

    def ping(self) -> bytes:
        """Return the event that begins the response once more: Codex waits 300 s for any event."""
        return self._event("response.in_progress", response=self._response())

    def delta(self, delta: Delta) -> bytes:
        """Return the events that a delta makes certain; a summary is sent in one piece."""
        return b"" if self.request.compacting else super().delta(delta)

    def finish(self, answer: TurnAnswer) -> bytes:
        """Return what is left, and the whole response."""
        rest, status = self._rest(answer), _status(answer)
        response = {**answer_body(self.request, answer), "output": self.items}
        return rest + self._event(f"response.{status}", response=response)

    def _rest(self, answer: TurnAnswer) -> bytes:
        """Return the events of the items that are not complete yet."""
        if self.request.compacting:
            item = compaction_item(answer)
            return self._added(item) + self._complete(item)
        message, status = answer.choices[0].message, _status(answer)
        calls = AssistantParts.of(message).calls
        rest = self.send(self.text.remaining(message))
        if not (self.items or self.open or calls):
            rest += self.open_part(self.CONTENT)
        rest += self._close("completed" if calls else status)
        for place, call in enumerate(calls):
            # Only the last item can be cut.
            rest += self._send_call(place, call, "completed" if place + 1 < len(calls) else status)
        return rest

    def fail(self, status: int, kind: str, message: str) -> bytes:
        """Return a failed response in place of what is left."""
        # A response has two codes for failures, not those of error bodies.
        code = "rate_limit_exceeded" if status == HTTPStatus.TOO_MANY_REQUESTS else "server_error"
        error = {"code": code, "message": message, "type": openai_error(status, kind, message, None)["type"]}
        response = {**self._response(), "status": "failed", "error": error, "output": self.items}
        return self._event("response.failed", response=response)

    def _response(self) -> dict[str, Any]:
        return _head(self.request, self.stamp.id, self.stamp.created, self.stamp.model)

    def open_part(self, kind: str) -> bytes:
        """Return the events that close the open item, and open one with text of this kind."""
        closed = self._close("completed")
        self.open, self.texts = kind, []
        item = {**self._item(""), "status": "in_progress"}
        added = self._added({**item, "content": []})
        part = self._event("response.content_part.added", **self._position(), part=item["content"][0])
        return closed + added + part

    def grow(self, kind: str, more: str) -> bytes:
        """Return the event that adds text to the open item."""
        self.texts.append(more)
        return self._event(f"{kind}.delta", **self._position(), delta=more, **self._no_logprobs())

    def _close(self, status: str) -> bytes:
        """Return the events that close the open item, if there is one."""
        if not self.open:
            return b""
        text, position = "".join(self.texts), self._position()
        done = self._event(f"{self.open}.done", **position, text=text, **self._no_logprobs())
        item = {**self._item(text), "status": status}
        part_done = self._event("response.content_part.done", **position, part=item["content"][0])
        self.open = ""
        return done + part_done + self._complete(item)

    def _send_call(self, place: int, call: ToolCall, status: str) -> bytes:
        """Return the events of a tool call, in one piece: only the final message says that it is one."""
        item = {**_call_item(self.request, self.stamp.id, place, call), "status": status}
        position = {"item_id": item["id"], "output_index": len(self.items)}
        if item["type"] not in CALL_EVENTS:
            return self._added(item) + self._complete(item)
        field, kind = CALL_EVENTS[item["type"]]
        text, named = item[field], {"name": item["name"]} if item["type"] == CALL else {}
        added = self._added({**item, field: "", "status": "in_progress"})
        if text:
            added += self._event(f"{kind}.delta", **position, delta=text)
        done = self._event(f"{kind}.done", **position, **named, **{field: text})
        return added + done + self._complete(item)

    def _added(self, item: dict[str, Any]) -> bytes:
        return self._event("response.output_item.added", output_index=len(self.items), item=item)

    def _complete(self, item: dict[str, Any]) -> bytes:
        self.items.append(item)
        return self._event("response.output_item.done", output_index=len(self.items) - 1, item=item)

    def _item(self, text: str) -> dict[str, Any]:
        if self.open == self.CONTENT:
            return _message_item(self.stamp.id, text)
        return _reasoning_item(self.request, self.stamp.id, text)

    def _position(self) -> dict[str, Any]:
        return {"item_id": self._item("")["id"], "output_index": len(self.items), "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self.number = self.number, self.number + 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)

    def _no_logprobs(self) -> dict[str, Any]:
        """Return the empty log-probabilities that the API requires in events of content."""
        return {"logprobs": []} if self.open == self.CONTENT else {}
