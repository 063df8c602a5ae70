"""Assistant messages, parts and tool calls, in short."""

from __future__ import annotations

from typing import Any


def assistant(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def calling(call: Any) -> dict[str, Any]:
    return assistant(None, tool_calls=[call])


def part(text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def call(**more: Any) -> dict[str, Any]:
    return {"id": "c", "function": {"name": "f", "arguments": "{}"}, **more}
