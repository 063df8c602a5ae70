"""Messages that the conversations of vectors are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .oracle import Message
from .scenario import Turn

TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        },
    },
)
SYSTEM: Message = {"role": "system", "content": "Be brief."}
HELLO: Message = {"role": "user", "content": "Hello there"}
QUESTION: Message = {"role": "user", "content": "What is 12 + 34?"}
MORE: Message = {"role": "user", "content": "However, is it so?"}
ANSWER: Message = {"role": "assistant", "content": "However it is, the answer is 46"}
SPLIT = ("How", "ever")
"""Tokens that a model samples for a word which the tokenizer writes as one token."""


def call(name: str = "add", number: int = 1, arguments: Any = None) -> dict[str, Any]:
    """Return a tool call; its id has nine letters and digits."""
    arguments = {"a": number} if arguments is None else arguments
    return {
        "id": f"callabcd{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def calling(*calls: Mapping[str, Any], content: str = "", **more: str) -> dict[str, Any]:
    """Return an assistant message with tool calls."""
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **more}


def result(number: int = 1, content: str = "The answer is 46.") -> Message:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": f"callabcd{number}", "content": content}


def answer(content: str, **more: str) -> Message:
    """Return an assistant message with a text."""
    return {"role": "assistant", "content": content, **more}


def question(content: str) -> Message:
    """Return a user message."""
    return {"role": "user", "content": content}


def parts(*texts: str) -> list[dict[str, str]]:
    """Return texts as parts of a content."""
    return [{"type": "text", "text": text} for text in texts]


CALL = Turn(calling(call()))
"""A turn that calls a tool."""
