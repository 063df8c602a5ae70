"""Shapes of conversations: what agents and clients send, by what an engine may do to it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import attrs

Message = dict[str, Any]
SHAPES = Path(__file__).with_name("shapes.jsonl")
"""By what an engine may do to them. VLLM answers 400 to the last ones, from `a part without a text` on."""
CLIENTS = Path(__file__).with_name("client_messages.jsonl")
"""Messages as client programs sent them, with other words; made by running the programs."""

PARAMETERS = {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}
TOOL: Message = {"type": "function", "function": {"name": "f", "description": "d", "parameters": PARAMETERS}}


def text(words: str, **more: Any) -> Message:
    """Return a part of text."""
    return {"type": "text", "text": words, **more}


def user(content: Any = "q") -> Message:
    """Return a user's message."""
    return {"role": "user", "content": content}


def said(content: Any = "a", **more: Any) -> Message:
    """Return an assistant's message."""
    return {"role": "assistant", "content": content, **more}


@attrs.frozen
class Conversation:
    """A conversation with its name and tools."""

    name: str
    messages: list[Message]
    tools: list[Message] | None


@cache
def conversations() -> list[Conversation]:
    """Return all shapes, and what real client programs sent."""
    lines = [line for file in (SHAPES, CLIENTS) for line in file.read_text(encoding="utf-8").splitlines()]
    return [_conversation(**json.loads(line)) for line in lines]


def _conversation(shape: str, messages: list[Message], program: str = "", tools: Any = None) -> Conversation:
    called = any(one.get("tool_calls") for one in messages)
    given = ([TOOL] if called else None) if not program else tools or None
    return Conversation(f"{program}: {shape}" if program else shape, messages, given)
