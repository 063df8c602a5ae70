"""Items of OpenAI's Responses, as messages in the manner of the chat API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tito_io.dialects.fields import demanded, known, objects, of_kind, only
from tito_io.dialects.message_parts import ToolCall
from tito_io.dialects.protocol import UntranslatableError

from .reasoning import text_of

MESSAGE = frozenset(("type", "role", "content", "id", "status"))
CALL = frozenset(("type", "call_id", "name", "arguments", "id", "status", "caller"))
OUTPUT = frozenset(("type", "call_id", "output", "id", "status", "caller"))
TEXTS = ("input_text", "output_text", "text")
TYPES = "message, reasoning, function_call and function_call_output"


@attrs.define
class GatheredMessages:
    """Messages while they are gathered. The last one may be an assistant's that is not whole yet."""

    found: list[dict[str, Any]] = attrs.field(factory=list)

    def thought(self, text: str) -> None:
        """Add a thought: it begins an assistant message."""
        if text:
            self.found.append({"role": "assistant", "content": "", "reasoning": text})

    def said(self, content: Any) -> None:
        """Add what an assistant said, to a thought that stands alone or in a message of its own."""
        if self.found and self.found[-1].keys() == {"role", "content", "reasoning"} and not self._spoke():
            self.found[-1]["content"] = content
        else:
            self.found.append({"role": "assistant", "content": content})

    def called(self, call: dict[str, Any]) -> None:
        """Add a call to the assistant message before it, or begin one."""
        if not self.found or self.found[-1]["role"] != "assistant":
            self.found.append({"role": "assistant", "content": ""})
        self.found[-1].setdefault("tool_calls", []).append(call)

    def other(self, message: dict[str, Any]) -> None:
        """Add a message that is no assistant's."""
        self.found.append(message)

    def _spoke(self) -> bool:
        return bool(self.found[-1]["content"])


def messages(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of items.

    >>> messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
    [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'ho'}]
    """
    turns = GatheredMessages()
    for place, item in enumerate(items):
        _take(turns, item, f"input[{place}]")
    return turns.found


def _take(turns: GatheredMessages, item: Mapping[str, Any], field: str) -> None:
    kind = item.get("type") or "message"
    if kind == "message":
        _message(turns, item, field)
    elif kind == "reasoning":
        turns.thought(text_of(item, field))
    elif kind == "function_call":
        turns.called(_call(item, field))
    elif kind == "function_call_output":
        turns.other(_output(item, field))
    else:
        raise UntranslatableError(f"{field}.type", f"{kind!r:.60} cannot be translated", f"use {TYPES}")


def _message(turns: GatheredMessages, item: Mapping[str, Any], field: str) -> None:
    known(item, MESSAGE, f"{field}.")
    only(item, "role", ("user", "assistant", "system", "developer"), "use one of them", f"{field}.")
    role, content = (
        demanded(item, "role", str, f"{field}."),
        _content(item.get("content"), f"{field}.content"),
    )
    if role == "assistant":
        turns.said(content)
    else:
        turns.other({"role": role, "content": content})


def _call(item: Mapping[str, Any], field: str) -> dict[str, Any]:
    known(item, CALL, f"{field}.")
    only(item, "caller", ({"type": "direct"},), "tools are called by the model alone", f"{field}.")
    said = (demanded(item, name, str, f"{field}.") for name in ("call_id", "name", "arguments"))
    return ToolCall(*said).wire()


def _output(item: Mapping[str, Any], field: str) -> dict[str, Any]:
    known(item, OUTPUT, f"{field}.")
    content = _content(item.get("output"), f"{field}.output")
    return {"role": "tool", "tool_call_id": demanded(item, "call_id", str, f"{field}."), "content": content}


def _content(given: Any, field: str) -> str | list[dict[str, Any]]:
    """Return content: a string, or parts where there is more than one text."""
    if isinstance(given, str):
        return given
    parts = [_part(part, f"{field}[{place}]") for place, part in enumerate(objects(given, field))]
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(part: Mapping[str, Any], field: str) -> dict[str, Any]:
    kind = part.get("type")
    if kind in TEXTS:
        known(part, ("type", "text", "logprobs"), f"{field}.")
        return {"type": "text", "text": demanded(part, "text", str, f"{field}.")}
    if kind == "input_image":
        return {"type": "image_url", "image_url": _image(part, field)}
    raise UntranslatableError(f"{field}.type", f"{kind!r:.60} cannot be translated", "use texts and images")


def _image(part: Mapping[str, Any], field: str) -> dict[str, Any]:
    known(part, ("type", "image_url", "detail"), f"{field}.")
    detail = {} if part.get("detail") is None else {"detail": of_kind(part["detail"], str, f"{field}.detail")}
    return {"url": demanded(part, "image_url", str, f"{field}."), **detail}
