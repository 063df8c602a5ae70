"""The parts of an assistant message as an engine gave it: what was thought, said and called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from tito_core import InputError, Message


@attrs.frozen
class ToolCall:
    """A tool call; its arguments are text exactly as the message has them."""

    id: str
    name: str
    arguments: str

    def wire(self) -> dict[str, Any]:
        """Return it as OpenAI's chat API writes it."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@attrs.frozen
class Spoken:
    """The parts of a message; empty where there is nothing of a kind."""

    reasoning: str
    content: str
    calls: tuple[ToolCall, ...]

    @classmethod
    def of(cls, message: Message) -> Spoken:
        """Take a message apart; raises `InputError` for one that no engine here gives.

        >>> Spoken.of({"role": "assistant", "content": None, "reasoning": "hm"})
        Spoken(reasoning='hm', content='', calls=())
        """
        content = message.get("content")
        thought = {message[name] for name in ("reasoning", "reasoning_content") if message.get(name)}
        texts = isinstance(content, str | None) and all(isinstance(one, str) for one in thought)
        if not texts or len(thought) > 1:
            raise InputError("an engine's message has one content and one reasoning, both of them strings")
        calls = tuple(_call(call, place) for place, call in enumerate(message.get("tool_calls") or ()))
        return cls(next(iter(thought), ""), content or "", calls)


def _call(call: Mapping[str, Any], place: int) -> ToolCall:
    function = call.get("function")
    said = function if isinstance(function, Mapping) else call
    identifier, name = call.get("id"), said.get("name")
    if not isinstance(identifier, str) or not isinstance(name, str):
        raise InputError(f"an engine's message has a tool call without an id or a name at {place}")
    arguments = said.get("arguments") or ""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(identifier, name, text)
